"""Keys of jobs with `{vars.NAME}` for what only the caller of a script knows."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.config.schema.members.words import VARIABLE
from safelaunch.config.yaml_io.node import Node, mapping
from safelaunch.errors import ConfigError
from safelaunch.importer.findings import Note, Unresolved
from safelaunch.importer.variables.marks import ALL, FIRST, MARK, JobVariables, is_whole
from safelaunch.launchers.flag_table import PASTED_LINE
from safelaunch.secrets_in_text import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from safelaunch.importer.findings import ScriptLaunch

_MOST = 200
_NUMBER = 40_001  # the first in place of a mark, to read a line; each is a port, too
# set by a scheduler or a launcher for one run: a value of another run is never right
_OF_RUN = re.compile(
    r"(SLURM|PBS|LSB|SGE|OMPI|PMI|PMIX|TORCHELASTIC|KUBERNETES)_.*|JOB_ID|PATH|.*_PATH_|LD_.*|IFS"
    r"|PYTHONPATH|LIBRARY_PATH|CPATH|BASH.*|HOME|USER|LOGNAME|SHELL|TERM|LANG|LC_.*|TMPDIR|PS4"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,40}")


def unresolved(own: JobVariables, key: str, line: int) -> Unresolved:
    """Return the value of a variable as one that the script alone does not say."""
    what = f"`{key}` is not set in the script"
    if key == ALL or key[0] == "$":
        what = f"argument {key[1:]} of the script" if key != ALL else "all arguments of the script"
    why = Unresolved(what, line, key, content=own.mark(key))
    why.is_caller_value = True
    return why


def marked(own: JobVariables, text: str, line: int) -> Unresolved | None:
    """Return a text with marks as what the script alone does not say; None without any."""
    key = own.key(text)
    return None if key is None else unresolved(own, key, line).with_content(text)


class _Read(NamedTuple):
    """A launch with numbers in place of its marks, and the variable of each number."""

    launch: ScriptLaunch
    numbers: Mapping[str, str]


def variables_for(
    problems: Sequence[Unresolved],
    placeholders: Sequence[str],
    unfit: set[str],
    *,
    has_all: bool,
) -> JobVariables | None:
    """Return variables for what is asked for, None where there is none that may be one."""
    lines = {p.name: p.line for p in problems if p.name is not None and may_be(p)}
    count = max((int(key[1:]) for key in lines if key[0] == "$"), default=0)
    for number in range(1, count + 1):  # an argument that is not read is given, too
        lines.setdefault(f"${number}", 1)
    lines = {key: line for key, line in lines.items() if key not in unfit}
    has_all = has_all and ALL not in unfit
    if not lines and not has_all:
        return None
    names = dict[str, str]()
    for key in sorted(lines, key=lambda key: (key[0] == "$", len(key), key)):
        number = int(key[1:]) if key[0] == "$" else 0
        name = placeholders[number - 1] if 0 < number <= len(placeholders) else ""
        if not number:
            name = key
        elif not _NAME.fullmatch(name) or name == "ARG":
            name = f"arg{number}"
        while name in names.values():
            name = f"{name}_{number}"
        if is_secret_name(name):
            continue
        names[key] = name
    if has_all:
        name = "args"
        while name in names.values():
            name += "_"
        names[ALL] = name
        lines[ALL] = 1
    return JobVariables(names, lines) if len(names) <= _MOST else None


def may_be(problem: Unresolved) -> bool:
    """Whether a question may become a variable: by its name, and as only the caller knows it."""
    name = problem.name or ""
    is_argument = re.fullmatch(r"\$[1-9]\d?", name) is not None
    return is_argument or (
        problem.is_caller_value
        and _NAME.fullmatch(name) is not None
        and not _OF_RUN.fullmatch(name)
    )


def numbered(launch: ScriptLaunch, own: JobVariables, *, first: int = _NUMBER) -> _Read:
    """Return a launch whose marks are numbers, so that its words can be read as a line."""
    texts = "\n".join((*launch.words, *(value or "" for value in launch.env.values())))
    keys = list(own.names)
    used = dict.fromkeys(keys[ord(number) - FIRST] for number in MARK.findall(texts))
    free = (str(n) for n in range(first, 65_536) if str(n) not in texts)
    numbers = {key: next(free) for key in used}

    def filled(text: str) -> str:
        return MARK.sub(lambda match: numbers[keys[ord(match[1]) - FIRST]], text)

    different = {
        place: why
        for place, why in launch.different.items()
        if not is_whole(launch.words[place] if isinstance(place, int) else launch.env[place] or "")
    }
    env = {name: None if v is None else filled(v) for name, v in launch.env.items()}
    words = tuple(map(filled, launch.words))
    plain = replace(launch, words=words, env=env, different=different)
    return _Read(plain, {number: key for key, number in numbers.items()})


def unfit(
    launches: Sequence[ScriptLaunch], own: JobVariables, read: Callable[[ScriptLaunch], Node]
) -> set[str]:
    """Return the variables on whose values the keys of a launch depend."""
    result = set[str]()
    for launch in launches:
        item = numbered(launch, own)
        for key in item.numbers.values():
            others = {k for k in own.names if k != key}
            try:
                with_variables(_filled(launch, own, others), own, read)
            except ConfigError:
                result.add(key)
        try:
            with_variables(launch, own, read)
        except ConfigError:
            result |= {*item.numbers.values()} if not result else set()
    return result


def _filled(launch: ScriptLaunch, own: JobVariables, keys: set[str]) -> ScriptLaunch:
    """Return a launch with numbers in place of some marks."""
    pattern = re.compile("|".join(own.mark(key) for key in keys) or r"(?!)")
    env = {n: None if v is None else pattern.sub("7", v) for n, v in launch.env.items()}
    return replace(launch, words=tuple(pattern.sub("7", w) for w in launch.words), env=env)


def with_variables(
    launch: ScriptLaunch, own: JobVariables, read: Callable[[ScriptLaunch], Node]
) -> Node:
    """Return the keys of a launch with its variables; `read` returns those of one without marks.

    Raises ConfigError where they depend on a value.
    """
    trees = list[Node]()
    for first in (_NUMBER, _NUMBER + 10_000):
        item = numbered(launch, own, first=first)
        trees.append(_with_words(read(item.launch), item.numbers, own))
    if _plain(trees[0]) != _plain(trees[1]):
        raise ConfigError("what the launcher starts depends on a value of the caller")
    keys = trees[0]
    names = {match[1] for text in _texts(keys) for match in VARIABLE.finditer(text)}
    if not names:
        return keys
    block = {own.names[key]: _declaration(key, own) for key in own.names if own.names[key] in names}
    return replace(keys, items=(*_items({"vars": mapping(block, PASTED_LINE)}), *keys.items))


def notes(launch: ScriptLaunch, keys: Node, own: JobVariables) -> list[Note]:
    """Return what is said of the variables of a job."""
    block, result = keys.get("vars"), list[Note]()
    by_name = {name: key for key, name in own.names.items()}
    for name, value in block.items if block is not None else ():
        key = by_name[name.text]
        shown = '"$@"' if key == ALL else key
        what = f"`{shown}` is what only its caller knows"
        outcome = f"`{{vars.{name.text}}}`: --set vars.{name.text}=VALUE"
        if value.kind == "list" or key == ALL:
            outcome = f"`{{vars.{name.text}}}`: --set 'vars.{name.text}=[WORD, ..]'"
        result.append(Note(own.lines.get(key, launch.line), what, outcome))
    return result


def _declaration(key: str, own: JobVariables) -> Node:
    kind = own.types.get(key, "text")
    value = Node("list", PASTED_LINE) if key == ALL else Node("scalar", PASTED_LINE, "null", True)
    if kind == "text":
        return value
    fields = {"default": value, "type": Node("scalar", PASTED_LINE, text=kind)}
    return mapping(fields, PASTED_LINE)


def _with_words(keys: Node, numbers: Mapping[str, str], own: JobVariables) -> Node:
    """Return keys with a word for each number. Raises ConfigError where one may be no word."""
    pattern = re.compile("|".join(numbers) or r"(?!)")

    def with_words(node: Node, *, is_item: bool, key: str) -> Node:
        if node.kind == "map":
            pairs = []
            for name, value in node.items:
                if pattern.search(name.text):
                    raise ConfigError("a value of the caller names an option or a variable")
                pairs.append((name, with_words(value, is_item=False, key=key)))
            return replace(node, items=tuple(pairs))
        if node.kind == "list":
            parts = tuple(with_words(item, is_item=True, key=key) for item in node.items)
            return replace(node, items=parts)
        if VARIABLE.search(node.text) and numbers:
            raise ConfigError("`{vars.` in a word of the script, and values of the caller")
        numbers_in = pattern.findall(node.text)
        lists = [number for number in numbers_in if numbers[number] == ALL]
        if lists and (node.text != lists[0] or not is_item):
            raise ConfigError("all arguments of the caller in one word")
        # `gpus` has a word for each card, which are one value of the script: `0,1`
        if numbers_in and key in ("setup", "extends", "env_from", "name", "log", "gpus"):
            raise ConfigError(f"a value of the caller in `{key}`")
        text = pattern.sub(lambda match: f"{{vars.{own.names[numbers[match[0]]]}}}", node.text)
        return replace(node, text=text, plain=False) if numbers_in else node

    pairs = [(name, with_words(value, is_item=False, key=name.text)) for name, value in keys.items]
    return replace(keys, items=tuple(pairs))


def _items(entries: dict[str, Node]) -> tuple[tuple[Node, Node], ...]:
    return mapping(entries, PASTED_LINE).items


def _texts(node: Node) -> list[str]:
    texts = [node.text]
    for item in node.items:
        for child in item if isinstance(item, tuple) else (item,):
            texts += _texts(child)
    return texts


def _plain(node: Node) -> object:
    if node.kind == "map":
        return {key.text: _plain(value) for key, value in node.items}
    return [_plain(item) for item in node.items] if node.kind == "list" else node.text
