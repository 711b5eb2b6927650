"""Checks a job's arguments against the configuration that a Hydra program composes.

Source: hydra/_internal/utils.py and config_loader_impl.py of hydra-core 1.3.8.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.analysis.option_model import STRAY_BLANK, OptionProblem
from safelaunch.analysis.options.parsers.hydra import tree
from safelaunch.analysis.options.parsers.hydra.compose import (
    Composition,
    GroupChoices,
    MissingOption,
)
from safelaunch.analysis.options.parsers.hydra.files import ConfigFiles, Default
from safelaunch.analysis.options.parsers.hydra.grammar import (
    ADD,
    CHANGE,
    COMPOUND,
    DELETE,
    FORCE,
    NULL,
    NUMBER,
    SWEEP,
    TEXT,
    Override,
    SyntaxProblem,
    parse,
)  # fmt: skip
from safelaunch.analysis.options.parsers.hydra.tree import Leaf, Tree
from safelaunch.analysis.python.trees import SourceLine, Unclear
from safelaunch.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from safelaunch.model import Args

_VALUE_FLAGS = {
    "--config-path": "path", "-cp": "path", "--config-name": "name", "-cn": "name",
    "--config-dir": "dir", "-cd": "dir", "--package": "package", "-p": "package",
}  # fmt: skip
_SWITCHES = {"--multirun": "multirun", "-m": "multirun", "--run": "run", "-r": "run"}
# With these the program does not run: it prints something, or repeats another run.
_OTHER_MODES = (
    "--help", "-h", "--hydra-help", "--version", "--cfg", "-c", "--info", "-i", "--resolve",
    "--shell-completion", "-sc", "--experimental-rerun",
)  # fmt: skip
_FLAGS = (*_VALUE_FLAGS, *_SWITCHES, *_OTHER_MODES)
_SHOWN_OPTIONS = 8


class HydraProgram(NamedTuple):
    """What `@hydra.main` says: `config_path` and `config_name`, None where it has none.

    `folder`: of the file with the decorator; `working_dir` of the job. `package_folder` finds the
    folder of a package by its name.
    """

    location: SourceLine
    folder: str
    config_path: str | None
    config_name: str | None
    working_dir: str | None
    package_folder: Callable[[str], str | None]
    uses_yml: bool = False
    has_code_configs: bool = False


class _CommandLine(NamedTuple):
    """The arguments of a Hydra program."""

    overrides: tuple[str, ...]
    values: dict[str, str]
    is_multirun: bool


class HydraRules:
    """The rules by which a Hydra program refuses its arguments."""

    def __init__(self, program: HydraProgram) -> None:
        self.program = program

    def problems(self, args: Args) -> Iterator[OptionProblem]:
        """Yield what Hydra refuses; raise Unclear where that is not certain."""
        problems, command_line = self.split(args)
        yield from problems
        if problems or command_line is None:
            return
        parsed = [(word, _parse(word)) for word in command_line.overrides]
        overrides = [override for _, override in parsed if isinstance(override, Override)]
        if len(overrides) == len(parsed):
            yield from self.composition_problems(command_line, overrides)
        for word, what in parsed:
            if isinstance(what, str):
                yield self.syntax_problem(word, what)

    def problem(self, word: str, message: str, fix: str, place: SourceLine | None) -> OptionProblem:
        """Return a problem of a word, at the script where no file is its place."""
        return OptionProblem(word, f"`{word}`: {message}", fix, place or self.program.location)

    def split(self, args: Args) -> tuple[list[OptionProblem], _CommandLine | None]:
        """Return what argparse refuses, and the parts of the command line.

        None in place of the parts where the program does not run its function.
        """
        overrides: list[list[str]] = [[]]
        values: dict[str, str] = {}
        is_multirun = False
        words = iter(args.words)
        for word in words:
            if not word.startswith("-") or word == "-":
                overrides[-1].append(word)
                continue
            if overrides[-1]:
                overrides.append([])
            name, equals, value = word.partition("=")
            flag = self.flag(name)
            if flag is None:
                key = name.lstrip("-")
                fix = did_you_mean(name, [f for f in _FLAGS if f.startswith("--")])
                if equals or args.is_mapping:
                    fix = f"write `{key}={value}`, as an item of a list in `args:`"
                fix = fix or f"remove `{name}`"
                return [self.problem(name, "Hydra has no such option", fix, None)], None
            if flag in _OTHER_MODES:
                return [], None
            if flag in _SWITCHES:
                is_multirun |= _SWITCHES[flag] == "multirun"
                continue
            following = value if equals else next(words, None)
            if following is None or (not equals and following.startswith("-")):
                fix = f"give `{name}` a value"
                return [self.problem(name, "it takes a value", fix, None)], None
            values[_VALUE_FLAGS[flag]] = following
        groups = [group for group in overrides if group]
        if len(groups) > 1:
            # argparse fills `nargs="*"` by the first words, and refuses what comes later
            message = "Hydra refuses overrides on both sides of an option"
            fix = "put all options of Hydra before the overrides"
            return [self.problem(groups[1][0], message, fix, None)], None
        return [], _CommandLine(tuple(groups[0] if groups else ()), values, is_multirun)

    def flag(self, name: str) -> str | None:
        """Return the option of Hydra that a word is; None if it has none of that name."""
        if name in _FLAGS:
            return name
        matches = [flag for flag in _FLAGS if flag.startswith(name)]
        if name == "--" or not name.startswith("--") or len(matches) > 1:
            raise Unclear(f"`{name}` is not understood", self.program.location)
        return matches[0] if matches else None

    def syntax_problem(self, word: str, what: str) -> OptionProblem:
        """Return the problem of a word that is no override."""
        key, equals, value = word.partition("=")
        fix = f"write `{word}=VALUE`" if word.strip() else STRAY_BLANK
        if equals:
            quote = "'" if "'" not in value else '"'
            fix = f"quote the value for Hydra: {key}={quote}{value}{quote}, within shell quotes"
        return self.problem(word, f"Hydra cannot parse it: it {what}", fix, None)

    def composition_problems(
        self, command_line: _CommandLine, overrides: Sequence[Override]
    ) -> Iterator[OptionProblem]:
        """Yield the problems of the primary configuration, the groups and the keys."""
        if any(override.key == "hydra.searchpath" for override in overrides):
            raise Unclear("`hydra.searchpath` is set by an argument", self.program.location)
        files = ConfigFiles(self.folders(command_line), uses_yml=self.program.uses_yml)
        name = command_line.values.get("name", self.program.config_name)
        primary = None if name is None else files.load(name)
        if name is not None and primary is None:
            yield self.missing_primary(name, files)
            return
        for path in () if primary is None else primary.search_path:
            files.add(self.search_folder(path))
        place = None if primary is None else SourceLine(primary.path, 1)
        yield from self.override_problems(command_line, overrides, files, place)

    def override_problems(
        self,
        command_line: _CommandLine,
        overrides: Sequence[Override],
        files: ConfigFiles,
        place: SourceLine | None,
    ) -> Iterator[OptionProblem]:
        """Yield the problems of the groups and the keys."""
        name = command_line.values.get("name", self.program.config_name)
        own = [o for o in overrides if not f"{o.key}.".startswith(("hydra.", "hydra/"))]
        groups = [o for o in own if o.form != COMPOUND and files.is_group(o.key)]
        refused = [problem for override in groups for problem in self.group_problems(override)]
        yield from refused
        if refused:
            return
        composition = Composition(
            files, self.choices(groups, files), has_code_configs=self.program.has_code_configs
        )
        try:
            keys = composition.compose(name)
        except MissingOption as missing:
            if missing.option != "???" or not command_line.is_multirun:
                yield self.missing_option(missing, files, overrides)
            return
        sets_mode = composition.sets_mode or any(o.key == "hydra.mode" for o in overrides)
        if not command_line.is_multirun and not sets_mode:
            yield from map(self.sweep_problem, (o for o in own if o.form == SWEEP))
        yield from self.unused_groups(groups, composition, place)
        if not any(o.form == SWEEP for o in groups):  # else each job has other keys
            names = tuple(tree.keys(keys))  # those of the files: an unknown key is no suggestion
            for override in own:
                if override not in groups and override.form != SWEEP:
                    yield from self.key_problems(override, keys, names, place)

    def folders(self, command_line: _CommandLine) -> list[str]:
        """Return the folders of the search path; raise Unclear where one is not here."""
        program = self.program
        path = command_line.values.get("path", program.config_path)
        folders = []
        if path is not None and path.startswith("pkg://"):
            folders.append(self.search_folder(path))
        elif path is not None:
            folder = os.path.normpath(os.path.join(program.folder, path))
            if not os.path.isdir(folder):
                raise Unclear(f"its folder {path} is not on this machine", program.location)
            folders.append(folder)
        if "dir" in command_line.values:
            folders.append(self.search_folder(command_line.values["dir"]))
        return folders

    def search_folder(self, path: str) -> str:
        """Return the folder of an item of the search path, or raise Unclear."""
        scheme, separator, rest = path.rpartition("://")
        folder: str | None = None
        if scheme == "pkg":
            folder = self.program.package_folder(rest.replace("/", "."))
        elif scheme in ("file", "") and (os.path.isabs(rest) or self.program.working_dir):
            folder = os.path.join(self.program.working_dir or "", rest)
        if folder is None or "${" in path or not os.path.isdir(folder):
            raise Unclear(f"`{path}` of its search path is not found", self.program.location)
        del separator
        return folder

    def choices(self, groups: Sequence[Override], files: ConfigFiles) -> GroupChoices:
        """Return the groups that the arguments select; raise Unclear for a computed option."""
        selected: dict[str, str] = {}
        appended: list[Default] = []
        deleted: dict[str, str | None] = {}
        for override in groups:
            key = override.key_with_package
            if override.sign == DELETE:
                deleted[key] = override.text or None
                continue
            if override.form == SWEEP and override.sign == CHANGE:
                # any option gives the groups that can be overridden
                for option in override.choices:
                    if files.load(f"{override.key}/{option}") is None:
                        selected[key] = option
                continue
            is_text = override.form == TEXT and override.is_literal and override.text
            if not is_text:
                raise Unclear(f"the option of `{override.word}` is computed", self.program.location)
            if override.sign == ADD:
                options = (override.text,)
                appended.append(Default(f"{override.key}", options, override.package))
            else:
                selected[key] = override.text
        return GroupChoices(selected, appended, deleted)

    def group_problems(self, override: Override) -> Iterator[OptionProblem]:
        """Yield that a group cannot be selected in this way."""
        if override.sign == FORCE:
            message = f"`{override.key}` is a group, which `++` cannot add"
            yield self.problem(override.word, message, f"write `{override.word[1:]}`", None)
        elif override.sign != DELETE and override.form in (NULL, NUMBER):
            message = f"`{override.key}` is a group: its option is the name of a file"
            name = override.word.partition("=")[2]
            fix = f"quote a name: {override.key}='{name}', within shell quotes"
            yield self.problem(override.word, message, fix, None)

    def missing_primary(self, name: str, files: ConfigFiles) -> OptionProblem:
        """Return that the primary configuration has no file."""
        if self.program.has_code_configs:
            raise Unclear(f"`{name}` may be made in code", self.program.location)
        stem = name.removesuffix(".yaml")
        fix = did_you_mean(stem, files.options(os.path.dirname(name)))
        folder = files.folders[0] if files.folders else self.program.folder
        fix = fix or f"add {os.path.join(folder, stem)}.yaml, or correct the name"
        message = f"no such configuration in {', '.join(files.folders) or 'its search path'}"
        return self.problem(f"--config-name {name}", message, fix, None)

    def missing_option(
        self, missing: MissingOption, files: ConfigFiles, overrides: Sequence[Override]
    ) -> OptionProblem:
        """Return that a group has no such option, or that one must be selected."""
        options = files.options(missing.group)
        listed = ", ".join(f"`{option}`" for option in options[:_SHOWN_OPTIONS])
        if missing.option == "???":
            message = f"the group `{missing.group}` has no option by default"
            fix = f"add `{missing.key}=OPTION`: one of {listed or 'its files'}"
            return self.problem(missing.key, message, fix, None)
        message = f"the group `{missing.group}` has no option `{missing.option}`"
        fix = did_you_mean(missing.option, options) or f"one of {listed or 'its files'}"
        words = (o.word for o in overrides if o.key_with_package == missing.key)
        return self.problem(next(words, missing.key), message, fix, None)

    def sweep_problem(self, override: Override) -> OptionProblem:
        """Return that a value is a sweep, where one job is started."""
        message = "an unquoted comma is a sweep, which only `--multirun` runs"
        fix = "write a list as [a,b], a text as 'a,b' within shell quotes, or add `--multirun`"
        if not override.has_comma:
            message, fix = "it is a sweep, which only `--multirun` runs", "add `--multirun`"
        return self.problem(override.word, message, fix, None)

    def unused_groups(
        self, groups: Sequence[Override], composition: Composition, place: SourceLine | None
    ) -> Iterator[OptionProblem]:
        """Yield the groups that arguments select and no defaults list has."""
        for override in groups if not composition.is_open else ():
            key = override.key_with_package
            is_change = override.sign in (CHANGE, DELETE) and override.form != SWEEP
            if not is_change or key in composition.used:
                continue
            similar = [k for k in composition.group_keys if k.partition("@")[0] == override.key]
            fix = f"write `+{override.word}` to add it" if override.sign == CHANGE else "remove it"
            if similar:
                fix = f"did you mean `{similar[0]}`?"
            message = f"no defaults list has the group `{key}`"
            yield self.problem(override.word, message, fix, place)

    def key_problems(
        self, override: Override, keys: Tree, names: Sequence[str], place: SourceLine | None
    ) -> Iterator[OptionProblem]:
        """Yield the problem of a key, and apply the override to the keys."""
        key, sign = override.key, override.sign
        may_be_group = self.program.has_code_configs and "." not in key
        if may_be_group or not key:
            return
        if override.package is not None:
            message, fix = f"there is no group `{key}`", f"remove `@{override.package}`"
            yield self.problem(override.word, message, fix, place)
            return
        node = tree.find(keys, key)
        if sign == CHANGE and node is None:
            yield self.missing_key(override, names, place)
        elif sign == DELETE and node is None:
            message = f"the configuration has no key `{key}` to delete"
            yield self.problem(override.word, message, "remove it", place)
        elif sign == ADD and override.form in (TEXT, NUMBER, NULL) and _is_set(node):
            message = f"the configuration has the key `{key}` already, which `+` refuses"
            yield self.problem(override.word, message, f"write `{override.word[1:]}`", place)
        if sign == DELETE:
            tree.put(keys, key, None)
        elif node is None or sign != CHANGE or override.form == COMPOUND:
            is_plain = override.form in (TEXT, NUMBER) and override.is_literal
            is_plain = is_plain and not isinstance(node, dict)
            tree.put(keys, key, Leaf.VALUE if is_plain else Leaf.OPEN)
        elif isinstance(node, dict):
            tree.put(keys, key, Leaf.OPEN)

    def missing_key(
        self, override: Override, names: Sequence[str], place: SourceLine | None
    ) -> OptionProblem:
        """Return that the configuration has no such key."""
        parent, _, last = override.key.rpartition(".")
        start = f"{parent}." if parent else ""
        siblings = [n.removeprefix(start) for n in names if n.rpartition(".")[0] == parent]
        near = did_you_mean(last, siblings)
        same = [name for name in names if name.rpartition(".")[2] == last]
        fix = f"write `+{override.word}` to add it"
        below = [name for name in same if start and name.startswith(start)]
        if below:
            fix = f"did you mean `{below[0]}`? else {fix}"
        elif near:
            fix = f"{near.replace('`', f'`{start}', 1)} else {fix}"
        elif same:
            fix = f"did you mean `{same[0]}`? else {fix}"
        message = f"the configuration has no key `{override.key}`"
        return self.problem(override.word, message, fix, place)


def _parse(word: str) -> Override | str:
    """Return the override of a word, or what is wrong with it."""
    try:
        return parse(word)
    except SyntaxProblem as problem:
        return str(problem)


def _is_set(node: tree.Node | None) -> bool:
    """Whether a key certainly has a value that is not null."""
    return isinstance(node, dict) or node is Leaf.VALUE
