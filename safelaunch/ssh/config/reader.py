"""Evaluate ssh_config files for one host name as OpenSSH does: the first value wins.

Handles Host, Match, Include and the order of files; values.py interprets the values. The exception
is `Match exec`: reading the files runs no command.
"""

from __future__ import annotations

import glob
import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.ssh.config.address import matches_patterns
from safelaunch.ssh.config.lines import ConfigLine, read_lines
from safelaunch.ssh.config.tokens import UnsetVariable, expand_path, expand_percent_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.ssh.config.local_user import LocalUser

MAX_DEPTH = 16  # of Include, as in OpenSSH
_ACCUMULATING = ("identityfile", "certificatefile")  # all values count, not only the first
_PLAIN_CRITERIA = ("canonical", "final")
_CRITERIA = ("host", "originalhost", "user", "localuser")
# criteria that depend on a command, a network or a flag of ssh
_UNSUPPORTED_CRITERIA = ("exec", "localnetwork", "tagged", "version", "sessiontype", "command")


class _ConfigFile(NamedTuple):
    """A file to read; `is_user_file` decides the folder of a relative Include."""

    path: str
    shown: str
    is_user_file: bool
    check_owner: bool
    depth: int = 0


class Options:
    """The lines that apply to one host name, by keyword."""

    def __init__(self, name: str, user: str | None) -> None:
        self.name = name
        self.explicit_user = user
        self.notes: dict[str, None] = {}  # in order, each once
        self.unsupported: dict[str, None] = {}  # settings that only OpenSSH follows
        self._lines: dict[str, list[ConfigLine]] = {}

    def line(self, keyword: str) -> ConfigLine | None:
        """Return the line that sets a keyword, or None."""
        lines = self._lines.get(keyword)
        return lines[0] if lines else None

    def lines(self, keyword: str) -> list[ConfigLine]:
        """Return all lines of a keyword that may have several values."""
        return self._lines.get(keyword, [])

    def add_line(self, line: ConfigLine) -> None:
        """Add a line, unless an earlier line has set its keyword."""
        if line.keyword in _ACCUMULATING:
            self._lines.setdefault(line.keyword, []).append(line)
            return
        # ProxyCommand and ProxyJump exclude each other
        if line.keyword in ("proxyjump", "proxycommand") and (
            "proxycommand" in self._lines or self.proxy_jump() is not None
        ):
            return
        self._lines.setdefault(line.keyword, [line])

    def proxy_jump(self) -> ConfigLine | None:
        """Return the line with the jump hosts, without quotes and comment; None for `none`."""
        line = self.line("proxyjump")
        text = line.text.split("#")[0].strip().strip('"') if line else "none"
        return line._replace(text=text) if line and text.lower() != "none" else None


def effective_options(
    name: str, local: LocalUser, *, config: str | None = None, user: str | None = None
) -> Options:
    """Return the options of the files for a host name; `user` takes precedence over theirs.

    `config` replaces the user's and the system's file, as with `ssh -F`. Raises ConfigError with
    file and line.
    """
    reader = _ConfigReader(name, local, user)
    reader.read_files(config)
    if reader.needs_final_pass:  # its patterns match the host name of the first pass
        reader.final_pass = True
        reader.host = host_name(reader.options)
        reader.options.add_line(ConfigLine("hostname", quoted(reader.host), ""))
        reader.read_files(config)
    return reader.options


def _files(local: LocalUser, config: str | None) -> tuple[_ConfigFile, ...]:
    if config is not None:
        file = _ConfigFile(config, local.shown(config), is_user_file=True, check_owner=False)
        return () if config.lower() == "none" else (file,)
    system = str(local.path.join(local.system_folder, "ssh_config"))
    return (
        _ConfigFile(local.config, local.shown(local.config), is_user_file=True, check_owner=True),
        _ConfigFile(system, system, is_user_file=False, check_owner=False),
    )


class _ConfigReader:
    """Reads the files once, or twice if they contain `Match final`."""

    def __init__(self, name: str, local: LocalUser, user: str | None) -> None:
        self.local = local
        self.options = Options(name, user)
        self.host = name  # the name that Host patterns are compared with
        self.final_pass = False
        self.needs_final_pass = False

    def read_files(self, config: str | None) -> None:
        """Add the lines that apply of all files."""
        for file in _files(self.local, config):
            self.read(file)

    def read(self, file: _ConfigFile, *, active: bool = True) -> None:
        """Add the lines of a file that apply; none with `active` False.

        OpenSSH also reads an Include that does not apply: its `Match final` causes a second pass.
        """
        reached = active
        for line in self._lines(file):
            if line.keyword == "host":
                active = reached and matches_patterns(line.words(), self.host)
            elif line.keyword == "match":
                active = self._is_match(line, reached=reached)
            elif line.keyword == "include":
                for included in self._included(line, file):
                    self.read(included, active=active)
            elif active:
                self.options.add_line(line._replace(is_user_file=file.is_user_file))

    def _lines(self, file: _ConfigFile) -> Iterator[ConfigLine]:
        try:
            yield from read_lines(file.path, file.shown, check_owner=file.check_owner)
        except FileNotFoundError:
            if file.is_user_file and not file.check_owner:  # the user named this file
                raise ConfigError("no such file", where=file.shown) from None
        except OSError as e:
            self.options.notes[f"{file.shown} cannot be read: {e.strerror}"] = None

    def _is_match(self, line: ConfigLine, *, reached: bool) -> bool:
        words = iter(_criteria(line.text))
        result, unanswered = reached, []
        for word in words:
            name = word.removeprefix("!").lower()
            if name == "all":
                result = result and not word.startswith("!")
                continue
            if name in _PLAIN_CRITERIA:
                self.needs_final_pass = self.needs_final_pass or name == "final"
                result = result and self.final_pass is not word.startswith("!")
                continue
            argument = next(words, None)
            if argument is None or name not in (*_CRITERIA, *_UNSUPPORTED_CRITERIA):
                raise _bad_criterion(name, argument, line)
            if name in _UNSUPPORTED_CRITERIA:
                unanswered.append(name)
            elif self._criterion_matches(name, argument) is word.startswith("!"):
                result = False
        if result and unanswered:
            self.options.unsupported[f"{line.where}: `Match {unanswered[0]}`"] = None
        return result and not unanswered

    def _criterion_matches(self, criterion: str, patterns: str) -> bool:
        options = self.options
        line = options.line("user")
        if criterion == "localuser":
            value = self.local.user
        elif criterion == "user":
            value = options.explicit_user or (line.word() if line else self.local.user)
        else:
            name = options.name if criterion == "originalhost" else host_name(options, self.host)
            patterns, value = patterns.lower(), name.lower()
        return matches_patterns(patterns.split(","), value)

    def _included(self, line: ConfigLine, file: _ConfigFile) -> Iterator[_ConfigFile]:
        if file.depth >= MAX_DEPTH:
            raise ConfigError(
                f"`Include` nested deeper than {MAX_DEPTH} files",
                where=line.where,
                hint="does a file include itself?",
            )
        for path in included_files(line, self.local, is_user_file=file.is_user_file):
            shown = self.local.shown(path)
            yield _ConfigFile(
                path, shown, file.is_user_file, check_owner=True, depth=file.depth + 1
            )


def included_files(line: ConfigLine, local: LocalUser, *, is_user_file: bool) -> Iterator[str]:
    """Yield the files that an Include matches, sorted within each pattern."""
    for word in line.words():
        try:
            pattern = expand_path(word, {"d": local.home, "u": local.user}, local, line.where)
        except UnsetVariable:
            continue  # OpenSSH treats it as a pattern without matches
        folder = local.ssh_folder if is_user_file else local.system_folder
        yield from sorted(glob.glob(local.path.join(folder, pattern)))


def host_name(options: Options, host: str | None = None) -> str:
    """Return the host name to connect to, according to the lines read so far."""
    line = options.line("hostname")
    name = options.name if host is None else host
    if line is None:
        return name if ":" in name else name.lower()
    word = line.word()
    expanded = expand_percent_tokens(word, {"h": name}, line.where) if line.where else word
    return expanded if ":" in expanded else expanded.lower()


def quoted(text: str) -> str:
    """Return a word with quotes, as a config file would contain it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _criteria(text: str) -> list[str]:
    words = []
    for match in re.finditer(r'"([^"]*)"|([^\s="]+)', text):
        if match[0].startswith("#"):
            break
        words.append(match[2] if match[1] is None else match[1])
    return words


def _bad_criterion(name: str, argument: str | None, line: ConfigLine) -> ConfigError:
    supported = ("all", *_PLAIN_CRITERIA, *_CRITERIA, *_UNSUPPORTED_CRITERIA)
    if name in supported and argument is None:
        return ConfigError(f"`Match {name}` without a value", where=line.where)
    return ConfigError(
        f"unknown criterion `{name}` of Match",
        where=line.where,
        hint=did_you_mean(name, supported) or "known: " + ", ".join(supported),
    )


def declared_hosts(local: LocalUser, *, config: str | None = None) -> list[str]:
    """Return the Host names without wildcards, in order, for completion and suggestions."""
    hosts: dict[str, None] = {}
    pending, visited = list(_files(local, config)), set[str]()
    while pending:
        file = pending.pop(0)
        if file.path in visited:
            continue
        visited.add(file.path)
        try:
            for line in read_lines(file.path, file.shown, check_owner=file.check_owner):
                if line.keyword == "host":
                    plain = (word for word in line.words() if not re.search(r"[*?!]", word))
                    hosts.update(dict.fromkeys(plain))
                elif line.keyword == "include":
                    pending += [
                        file._replace(path=path, shown=path)
                        for path in included_files(line, local, is_user_file=file.is_user_file)
                    ]
        except (OSError, ConfigError):
            continue  # a command that connects reports the error
    return list(hosts)
