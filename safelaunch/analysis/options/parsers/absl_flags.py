"""Reads the flags that a program of absl defines: `flags.DEFINE_string(...)`, `app.run(main)`.

Source: absl-py 2.5.1: `--x`, `-x`, a bool also `--nox`; a value is the next word whatever it looks
like; words that are no flags reach `main`. A package that is imported may define flags too, so
programs with packages other than those listed are left open.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis.imports.stdlib import NAMES
from safelaunch.analysis.option_model import BOOL, FLOAT, INT, OptionProblem, ScriptOptions
from safelaunch.analysis.python import calls
from safelaunch.analysis.python.module_search import find_module
from safelaunch.analysis.python.statements import REQUIRED
from safelaunch.analysis.python.trees import Unclear
from safelaunch.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.analysis.python.names import Module, Modules
    from safelaunch.analysis.python.trees import SourceLine
    from safelaunch.model import Args

KIND = "absl"
RUN = "absl.app.run"
_TEXT, _CHOICE = "text", "choice"
_KINDS = {
    "string": _TEXT, "boolean": BOOL, "bool": BOOL, "float": FLOAT, "integer": INT,
    "enum": _CHOICE, "enum_class": _TEXT, "list": _TEXT, "spaceseplist": _TEXT,
    "multi_string": _TEXT, "multi_integer": INT, "multi_float": FLOAT, "multi_enum": _TEXT,
    "multi_enum_class": _TEXT,
}  # fmt: skip
# absl/app.py and absl/logging
_OWN_FLAGS = {
    "run_with_pdb": BOOL, "pdb_post_mortem": BOOL, "pdb": BOOL, "run_with_profiling": BOOL,
    "profile_file": _TEXT, "use_cprofile_for_profiling": BOOL, "logtostderr": BOOL,
    "alsologtostderr": BOOL, "log_dir": _TEXT, "verbosity": _TEXT, "v": _TEXT,
    "logger_levels": _TEXT, "stderrthreshold": _TEXT, "showprefixforinfo": BOOL,
}  # fmt: skip
# With these the program prints something, or takes its flags from elsewhere.
_OTHER_MODES = {
    "help", "helpshort", "helpfull", "helpxml", "?", "h", "only_check_args", "flagfile", "undefok",
}  # fmt: skip
# Packages that define no flags, nor import one that does.
_PLAIN_PACKAGES = {
    "absl", "torch", "torchvision", "torchaudio", "numpy", "scipy", "yaml", "tqdm", "einops", "PIL",
}  # fmt: skip
_FLAG_IMPORTS = ("torch.utils.tensorboard", "absl.testing")
_MAX_ARGUMENTS = 4  # name, default, choices or help, help
_DYNAMIC = (b"import_module", b"__import__", b"exec(")
_TRUTH_WORDS = ("true", "t", "1", "false", "f", "0")
_EXPECTED = {INT: "a whole number", FLOAT: "a number", BOOL: "`true` or `false`"}


class AbslFlag(NamedTuple):
    """A spelling of a flag: the form of its value, and its choices where it has some.

    `target`: the flag that it sets, another one for an alias or a short name.
    """

    name: str
    kind: str
    location: SourceLine
    target: str
    choices: tuple[str, ...] = ()
    required: bool = False
    lacks_default: bool = False


def read(
    modules: Modules, module: Module, call: ast.Call, files: Mapping[str, str]
) -> ScriptOptions:
    """Return the rules of `app.run(main)`; raise Unclear if a flag may come from elsewhere."""
    place = module.location(call)
    if len(call.args) != 1 or call.keywords:
        raise Unclear("`app.run` gets its words or a parser from elsewhere", place)
    flags = {name: AbslFlag(name, kind, place, name) for name, kind in _OWN_FLAGS.items()}
    required: set[str] = set()
    for path, need in files.items():
        other = modules.load(path)
        if other is None:
            raise Unclear("a file of the program is not read", place)
        _check_imports(modules, other)
        _check_uses(other)
        required.update(_add_flags(other, flags, is_required=need is REQUIRED))
    has_defaults = any(b"set_default" in (modules.trees.data(path) or b"") for path in files)
    for name in () if has_defaults else required & flags.keys():
        flags[name] = flags[name]._replace(required=flags[name].lacks_default)
    return ScriptOptions(KIND, place, rules=AbslRules(flags, place))


def _add_flags(module: Module, flags: dict[str, AbslFlag], *, is_required: bool) -> set[str]:
    """Add the flags of a file, and return those without which the program does not start."""
    required: set[str] = set()
    for node in module.nodes:
        name = module.dotted(node.func) if isinstance(node, ast.Call) else ""
        if not isinstance(node, ast.Call) or not name.startswith("absl.flags."):
            continue
        is_certain = is_required and calls.runs_unconditionally(module, node, module.tree)
        function = name.removeprefix("absl.flags.")
        if function.startswith("DEFINE"):
            for flag in _definitions(module, node, function, flags):
                flags.setdefault(flag.name, flag._replace(required=False))
                required.update([flag.name] if flag.required and is_certain else [])
        elif function == "mark_flag_as_required" and is_certain and node.args:
            required.add(str(module.literal(node.args[0])))
    return required


def _check_imports(modules: Modules, module: Module) -> None:
    """Raise Unclear for an import that may define flags."""
    place = module.location(module.tree)
    if any(mark in (modules.trees.data(module.path) or b"") for mark in _DYNAMIC):
        raise Unclear("modules are imported by name, and may define flags", place)
    for node in module.nodes:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            package = name.partition(".")[0]
            is_plain = package in _PLAIN_PACKAGES or package in NAMES
            is_own = find_module(package, modules.folders) is not None
            if name.startswith(_FLAG_IMPORTS) or not (is_plain or is_own):
                why = f"`{package}` may define flags of its own"
                raise Unclear(why, module.location(node))


def _check_uses(module: Module) -> None:
    """Raise Unclear where flags may be defined by another name than that of absl."""
    for node in module.nodes:
        if not isinstance(node, ast.Name | ast.Attribute):
            continue
        parent, name = module.parents[node], module.dotted(node)
        is_called = isinstance(parent, ast.Call) and parent.func is node
        is_other = name.rpartition(".")[2].startswith("DEFINE_") and not (
            is_called and name.startswith("absl.flags.")
        )
        if is_other or (name == "absl.flags" and not isinstance(parent, ast.Attribute)):
            raise Unclear("flags may be defined by other names", module.location(node))


def _definitions(
    module: Module, call: ast.Call, function: str, flags: Mapping[str, AbslFlag]
) -> Iterator[AbslFlag]:
    """Yield the flags of a `DEFINE_...` call; raise Unclear for one that is not explicit."""
    place = module.location(call)
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    values = {key: module.literal(value) for key, value in keywords.items()}
    name = module.literal(call.args[0]) if call.args else values.get("name")
    if call.args and isinstance(call.args[0], ast.Name) and module.is_local(call.args[0]):
        raise Unclear("a flag is not explicit", place)
    short = values.get("short_name")
    is_open = None in keywords or "flag_values" in keywords
    if is_open or not isinstance(name, str) or not isinstance(short, str | None):
        raise Unclear("a flag is not explicit", place)
    kind = _KINDS.get(function.removeprefix("DEFINE_"))
    choices: tuple[str, ...] = ()
    target = name
    if function == "DEFINE_alias":
        original = flags.get(str(module.literal(call.args[1]))) if len(call.args) > 1 else None
        kind = None if original is None else original.kind
        target = name if original is None else original.target
    elif function == "DEFINE_enum":
        values_node = call.args[2] if len(call.args) > 2 else keywords.get("enum_values")  # noqa: PLR2004 - the third
        literal = module.literal(values_node)
        is_plain = isinstance(literal, list | tuple) and "case_sensitive" not in keywords
        choices = tuple(literal) if is_plain else ()
    if kind is None or len(call.args) > _MAX_ARGUMENTS:
        raise Unclear("a flag is not explicit", place)
    default = call.args[1] if len(call.args) > 1 else keywords.get("default")
    lacks_default = function != "DEFINE_alias" and module.literal(default) is None
    for spelling in filter(None, (name, short)):
        is_required = values.get("required") is True and spelling == name
        yield AbslFlag(spelling, kind, place, target, choices, is_required, lacks_default)


class AbslRules:
    """The rules by which absl refuses words."""

    def __init__(self, flags: Mapping[str, AbslFlag], location: SourceLine) -> None:
        self.flags = flags
        self.location = location

    def problems(self, args: Args) -> Iterator[OptionProblem]:
        """Yield what absl refuses."""
        if any(w.startswith("-") and w.lstrip("-").partition("=")[0] in _OTHER_MODES
               for w in args.words):  # fmt: skip
            return
        used: set[str] = set()
        words = iter(args.words)
        for word in words:
            if word == "--":
                break
            if word.startswith("-") and word.strip("-"):
                yield from self.word_problems(word, words, used)
        for flag in self.flags.values():
            if flag.required and flag.name not in used:
                message = f"the program requires `--{flag.name}`"
                fix = f"add `--{flag.name}` with its value"
                yield OptionProblem(f"--{flag.name}", message, fix, flag.location)

    def word_problems(
        self, word: str, words: Iterator[str], used: set[str]
    ) -> Iterator[OptionProblem]:
        """Yield the problems of a flag, whose value may be the next of `words`."""
        name, equals, value = word[2 if word.startswith("--") else 1 :].partition("=")
        flag = self.flags.get(name)
        negative = self.flags.get(name[2:]) if name.startswith("no") else None
        if flag is not None:
            used.add(flag.target)
            text = value if equals else None
            if flag.kind == BOOL and text is None:
                return
            text = next(words, None) if text is None else text
            if text is None:
                yield self.problem(word, f"`{word}` takes a value, got none", "give it a value")
            elif _is_wrong(flag, text):
                choices = ", ".join(f"`{choice}`" for choice in flag.choices)
                expected = _EXPECTED.get(flag.kind, f"one of {choices}")
                message = f"`--{name}` takes {expected}, got `{text}`"
                yield OptionProblem(word, message, f"give it {expected}", flag.location)
        elif negative is not None and negative.kind == BOOL:
            used.add(negative.target)
            if equals:
                yield self.problem(word, f"`{word}` takes no value", f"write `--{name}`")
        else:
            near = did_you_mean(name, self.flags)
            fix = near.replace("`", "`--", 1) if near else f"remove `{word}`"
            yield self.problem(word, f"the program has no flag `{word}`", fix)

    def problem(self, word: str, message: str, fix: str) -> OptionProblem:
        """Return a problem of a word."""
        return OptionProblem(word, message, fix, self.location)


def _is_wrong(flag: AbslFlag, value: str) -> bool:
    """Whether absl refuses a value."""
    if flag.kind == BOOL:
        return value.lower() not in _TRUTH_WORDS
    if flag.kind in (INT, FLOAT):
        try:
            _ = int(value, 0) if flag.kind == INT else float(value)
        except ValueError:
            return not value.lstrip("-").isdigit()  # `007` is no literal, and an integer
        return False
    return bool(flag.choices) and value not in flag.choices
