"""Parse an ssh_config file into lines of a keyword and its arguments."""

from __future__ import annotations

import os
import re
import stat
import sys
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES = 1 << 20
_BLANK = " \t\r\n\f"
_LINE = re.compile(
    rf'[{_BLANK}]*(?:"([^"]*)"|([^{_BLANK}"=]+))[{_BLANK}]*=?[{_BLANK}]*(.*)', re.DOTALL
)
_TOKEN = re.compile(
    r"""(?P<blank>[ \t]+) | \\(?P<escaped>['"\\ ]) | (?P<quoted>
    "(?:[^"\\]|\\['"\\]|\\(?!['"\\]))*" | '(?:[^'\\]|\\['"\\]|\\(?!['"\\]))*')
    | (?P<open>["']) | (?P<plain>.)""",
    re.VERBOSE | re.DOTALL,
)


class ConfigLine(NamedTuple):
    """One line of a file. `keyword` is lower case, `where` is `file:line`."""

    keyword: str
    text: str
    where: str
    is_user_file: bool = True  # else of the system's file

    def words(self) -> tuple[str, ...]:
        """Return the arguments, split as OpenSSH does: quotes, backslashes, a final comment.

        Raises ConfigError for an unterminated quote.
        """
        words: list[str] = []
        word: str | None = None
        for token in _TOKEN.finditer(self.text):
            if token["blank"]:
                words += [] if word is None else [word]
                word = None
            elif word is None and token["plain"] == "#":
                break
            elif token["open"]:
                raise ConfigError(f"`{self.keyword}`: unterminated quote", where=self.where)
            else:
                text = token["escaped"] or token["plain"]
                if token["quoted"]:
                    text = re.sub(r"""\\(['"\\])""", r"\1", token["quoted"][1:-1])
                word = (word or "") + text
        return tuple(words if word is None else [*words, word])

    def word(self) -> str:
        """Return the only argument. Raises ConfigError if there are several."""
        words = self.words()
        if len(words) != 1 or not words[0]:
            what = "nothing" if not any(words) else f"{len(words)} words"
            raise ConfigError(f"`{self.keyword}` takes one word, got {what}", where=self.where)
        return words[0]


def read_lines(path: str, shown: str, *, check_owner: bool) -> Iterator[ConfigLine]:
    """Yield the lines of a file that are not blank or comments. `shown` is its name in messages.

    Raises OSError if it cannot be read, ConfigError if it is too large or UTF-16, or, with
    `check_owner`, if somebody else may write to it: it could hold a ProxyCommand. OpenSSH also
    refuses such a file.
    """
    with open(path, "rb", opener=_opener) as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            return
        if check_owner:
            _check_owner(info, shown)
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ConfigError("the file is larger than 1 MiB", where=shown)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError(
            "this file is UTF-16 (PowerShell's `>` writes it)",
            where=shown,
            hint="save it as UTF-8",
        )
    for number, text in enumerate(data.decode("utf-8-sig", "surrogateescape").split("\n"), 1):
        line = text.strip(_BLANK)
        if line and not line.startswith("#"):
            yield _parse_line(line, f"{shown}:{number}")


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a FIFO must not wait for a writer


def _check_owner(info: os.stat_result, shown: str) -> None:
    if sys.platform == "win32":  # access lists apply, and those of the home folder are strict
        return
    foreign = info.st_uid not in (0, os.getuid())
    if foreign or info.st_mode & 0o022:
        raise ConfigError(
            "the file belongs to another user" if foreign else "other users may write to the file",
            where=shown,
            hint=f"ssh refuses it too; make yourself the owner, and: chmod go-w {shown}",
        )


def _parse_line(text: str, where: str) -> ConfigLine:
    match = _LINE.fullmatch(text)
    if match is None:
        raise ConfigError("no keyword at the start of the line", where=where)
    keyword = (match[1] if match[1] is not None else match[2]).lower()
    if not match[3]:
        raise ConfigError(f"`{keyword}` without a value", where=where)
    return ConfigLine(keyword, match[3], where)
