"""What ssh_config files say about one name, evaluated as OpenSSH does: the first value wins.

Covers Host, Match, Include and the order of files; what a value means is settings' matter.
`Match exec` is the exception: no command is run while settings are read.
"""

from __future__ import annotations

import glob
import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.ssh.config.lines import Line, read_lines
from safelaunch.ssh.config.tokens import Unset, file_name, tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.ssh.config.local_user import Local

MAX_DEPTH = 16  # of Include, as in OpenSSH
_SEVERAL = ("identityfile", "certificatefile")  # these add up
_PLAIN_CRITERIA = ("canonical", "final")
_CRITERIA = ("host", "originalhost", "user", "localuser")
# what only a command, a network or a flag of ssh could answer
_UNANSWERED = ("exec", "localnetwork", "tagged", "version", "sessiontype", "command")


class _File(NamedTuple):
    """A file to read: `of_user` decides where a relative Include starts."""

    path: str
    shown: str
    of_user: bool
    careful: bool
    depth: int = 0


class Options:
    """The lines that apply to one name, by keyword."""

    def __init__(self, name: str, user: str | None) -> None:
        self.name = name
        self.given_user = user
        self.notes: dict[str, None] = {}  # in order, each once
        self._lines: dict[str, list[Line]] = {}

    def line(self, keyword: str) -> Line | None:
        """Return the line that sets a keyword, or None."""
        found = self._lines.get(keyword)
        return found[0] if found else None

    def lines(self, keyword: str) -> list[Line]:
        """Return all lines of a keyword whose values add up."""
        return self._lines.get(keyword, [])

    def take(self, line: Line) -> None:
        """Take a line, unless an earlier one has said it."""
        if line.keyword in _SEVERAL:
            self._lines.setdefault(line.keyword, []).append(line)
            return
        if line.keyword in ("proxyjump", "proxycommand") and self._is_proxied():
            return
        self._lines.setdefault(line.keyword, [line])

    def _is_proxied(self) -> bool:
        """Whether one of the two that exclude each other is set; `ProxyJump none` is no proxy."""
        jump = self.line("proxyjump")
        return "proxycommand" in self._lines or (jump is not None and not is_none(jump.text))


def is_none(text: str) -> bool:
    """Whether the value is `none`, comment or not."""
    return text.split("#", maxsplit=1)[0].strip().strip('"').lower() == "none"


def options_of(
    name: str, local: Local, *, config: str | None = None, user: str | None = None
) -> Options:
    """Return what the files say about a name; `user` goes before what they say.

    `config` is read instead of the user's and the system's file, as with `ssh -F`. Raises
    ConfigError with file and line.
    """
    reader = _Reader(name, local, user)
    files = _files(local, config)
    for file in files:
        reader.read(file)
    if reader.wants_final:
        reader.begin_final()
        for file in files:
            reader.read(file)
    return reader.options


def _files(local: Local, config: str | None) -> tuple[_File, ...]:
    if config is not None:
        if config.lower() == "none":
            return ()
        return (_File(config, local.shown(config), of_user=True, careful=False),)
    system = str(local.path.join(local.system_folder, "ssh_config"))
    return (
        _File(local.config, local.shown(local.config), of_user=True, careful=True),
        _File(system, system, of_user=False, careful=False),
    )


class _Reader:
    """Goes through the files once or, where `Match final` asks for it, twice."""

    def __init__(self, name: str, local: Local, user: str | None) -> None:
        self.local = local
        self.options = Options(name, user)
        self.host = name  # what Host patterns are matched against
        self.is_final = False
        self.wants_final = False

    def begin_final(self) -> None:
        """From here on patterns see the host name that the first pass found."""
        self.host = host_name(self.options)
        self.is_final = True
        self.options.take(Line("hostname", quoted(self.host), ""))

    def read(self, file: _File, *, active: bool = True) -> None:
        """Take the lines of a file that apply; none at all where the Include does not.

        Such a file is read all the same, as in OpenSSH: its `Match final` asks for the second pass.
        """
        reached = active
        for line in self._lines(file):
            if line.keyword == "host":
                active = reached and self._is_host(line)
            elif line.keyword == "match":
                active = self._is_match(line, reached=reached)
            elif line.keyword == "include":
                for included in self._included(line, file):
                    self.read(included, active=active)
            elif active:
                self.options.take(line)

    def _lines(self, file: _File) -> Iterator[Line]:
        try:
            yield from read_lines(file.path, file.shown, careful=file.careful)
        except FileNotFoundError:
            if file.of_user and not file.careful:  # asked for by name
                raise ConfigError("no such file", where=file.shown) from None
        except OSError as e:
            self.options.notes[f"{file.shown} cannot be read: {e.strerror}"] = None

    def _is_host(self, line: Line) -> bool:
        found = False
        for word in line.words():
            if matches(word.removeprefix("!"), self.host):
                if word.startswith("!"):
                    return False
                found = True
        return found

    def _is_match(self, line: Line, *, reached: bool) -> bool:
        words = iter(_criteria(line.text))
        result, unanswered = reached, []
        for word in words:
            name = word.removeprefix("!").lower()
            if name == "all":
                result = result and not word.startswith("!")
                continue
            if name in _PLAIN_CRITERIA:
                self.wants_final = self.wants_final or name == "final"
                result = result and self.is_final is not word.startswith("!")
                continue
            argument = next(words, None)
            if argument is None or name not in (*_CRITERIA, *_UNANSWERED):
                raise _bad_criterion(name, argument, line)
            if name in _UNANSWERED:
                unanswered.append(name)
            elif self._meets(name, argument) is word.startswith("!"):
                result = False
        if result and unanswered:
            said = f"{line.where}: `Match {unanswered[0]}` is not evaluated, its lines are left out"
            self.options.notes[said] = None
        return result and not unanswered

    def _meets(self, criterion: str, patterns: str) -> bool:
        options = self.options
        if criterion == "localuser":
            return matches_list(patterns, self.local.user)
        if criterion == "user":
            said = options.line("user")
            user = options.given_user or (said.word() if said else self.local.user)
            return matches_list(patterns, user)
        name = options.name if criterion == "originalhost" else host_name(options, self.host)
        return matches_list(patterns.lower(), name.lower())

    def _included(self, line: Line, file: _File) -> Iterator[_File]:
        if file.depth >= MAX_DEPTH:
            raise ConfigError(
                f"`Include` nested deeper than {MAX_DEPTH} files",
                where=line.where,
                hint="does a file include itself?",
            )
        for path in included_files(line, self.local, of_user=file.of_user):
            yield _File(
                path,
                self.local.shown(path),
                of_user=file.of_user,
                careful=True,
                depth=file.depth + 1,
            )


def included_files(line: Line, local: Local, *, of_user: bool) -> Iterator[str]:
    """Yield the files that an Include names, sorted within each of its patterns."""
    for word in line.words():
        try:
            pattern = file_name(word, {"d": local.home, "u": local.user}, local, line.where)
        except Unset:
            continue  # OpenSSH: a pattern that names nothing
        folder = local.ssh_folder if of_user else local.system_folder
        yield from sorted(glob.glob(local.path.join(folder, pattern)))


def host_name(options: Options, host: str | None = None) -> str:
    """Return the real host name as far as the lines taken so far say it."""
    line = options.line("hostname")
    name = options.name if host is None else host
    if line is None:
        return name if ":" in name else name.lower()
    found = tokens(line.word(), {"h": name}, line.where) if line.where else line.word()
    return found if ":" in found else found.lower()


def quoted(text: str) -> str:
    """Return a word as it would stand in a file."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _criteria(text: str) -> list[str]:
    found = []
    for word in re.finditer(r'"([^"]*)"|([^\s="]+)', text):
        if word[0].startswith("#"):
            break
        found.append(word[2] if word[1] is None else word[1])
    return found


def _bad_criterion(name: str, argument: str | None, line: Line) -> ConfigError:
    known = ("all", *_PLAIN_CRITERIA, *_CRITERIA, *_UNANSWERED)
    if name in known and argument is None:
        return ConfigError(f"`Match {name}` without a value", where=line.where)
    return ConfigError(
        f"unknown criterion `{name}` of Match",
        where=line.where,
        hint=did_you_mean(name, known) or "known: " + ", ".join(known),
    )


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern with `*` and `?` fits the whole text; brackets mean themselves."""
    parts = (".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def matches_list(patterns: str, text: str) -> bool:
    """Whether one of the patterns behind commas fits, and none that begins with `!` does."""
    found = False
    for pattern in patterns.split(","):
        if matches(pattern.removeprefix("!"), text):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def names(local: Local, *, config: str | None = None) -> list[str]:
    """Return the host names that the files spell out, in order: for completion and suggestions."""
    found: dict[str, None] = {}
    waiting, seen = list(_files(local, config)), set[str]()
    while waiting:
        file = waiting.pop(0)
        if file.path in seen:
            continue
        seen.add(file.path)
        try:
            for line in read_lines(file.path, file.shown, careful=file.careful):
                if line.keyword == "host":
                    plain = (word for word in line.words() if not re.search(r"[*?!]", word))
                    found.update(dict.fromkeys(plain))
                elif line.keyword == "include":
                    waiting += [
                        file._replace(path=path, shown=path)
                        for path in included_files(line, local, of_user=file.of_user)
                    ]
        except (OSError, ConfigError):
            continue  # whoever connects is told
    return list(found)
