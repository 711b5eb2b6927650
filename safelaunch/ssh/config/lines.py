"""An ssh_config file as lines: keyword, the rest as it stands, and the rest in words."""

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
_PART = re.compile(
    r"""(?P<blank>[ \t]+) | \\(?P<escaped>['"\\ ]) | (?P<quoted>
    "(?:[^"\\]|\\['"\\]|\\(?!['"\\]))*" | '(?:[^'\\]|\\['"\\]|\\(?!['"\\]))*')
    | (?P<open>["']) | (?P<plain>.)""",
    re.VERBOSE | re.DOTALL,
)


class Line(NamedTuple):
    """One line of a file. `keyword` is in lower case, `where` is `file:line`."""

    keyword: str
    text: str
    where: str

    def words(self) -> tuple[str, ...]:
        """Return the arguments as OpenSSH splits them: quotes, backslashes, a comment at the end.

        Raises ConfigError where a quote is left open.
        """
        words: list[str] = []
        word: str | None = None
        for part in _PART.finditer(self.text):
            if part["blank"]:
                words += [] if word is None else [word]
                word = None
            elif word is None and part["plain"] == "#":
                break
            elif part["open"]:
                raise ConfigError(f"`{self.keyword}`: a quote is left open", where=self.where)
            else:
                word = (word or "") + _unquoted(part)
        return tuple(words if word is None else [*words, word])

    def word(self) -> str:
        """Return the only argument. Raises ConfigError where there are several."""
        words = self.words()
        if len(words) != 1 or not words[0]:
            what = "nothing" if not any(words) else f"{len(words)} words"
            raise ConfigError(f"`{self.keyword}` takes one word, got {what}", where=self.where)
        return words[0]


def _unquoted(part: re.Match[str]) -> str:
    if part["quoted"]:
        return re.sub(r"""\\(['"\\])""", r"\1", part["quoted"][1:-1])
    return part["escaped"] or part["plain"]


def read_lines(path: str, shown: str, *, careful: bool) -> Iterator[Line]:
    """Yield the lines of a file that say something. `shown` names the file in messages.

    Raises OSError where it cannot be read and ConfigError where it must not: with `careful`, a file
    that somebody else may write to, as OpenSSH has it: it could hold a ProxyCommand.
    """
    with open(path, "rb", opener=_opener) as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            return
        if careful:
            _check_owner(info, shown)
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ConfigError("a file of this kind has at most 1 MiB", where=shown)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError(
            "this file is UTF-16 (PowerShell's `>` writes it)",
            where=shown,
            hint="save it as UTF-8",
        )
    for number, text in enumerate(data.decode("utf-8-sig", "surrogateescape").split("\n"), 1):
        line = text.strip(_BLANK)
        if line and not line.startswith("#"):
            yield _line(line, f"{shown}:{number}")


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a FIFO must not wait for a writer


def _check_owner(info: os.stat_result, shown: str) -> None:
    if sys.platform == "win32":  # access lists say it there, and the home folder's are tight
        return
    foreign = info.st_uid not in (0, os.getuid())
    if foreign or info.st_mode & 0o022:
        raise ConfigError(
            "it belongs to somebody else" if foreign else "others may write to it",
            where=shown,
            hint=f"ssh refuses it too; chown it to you, and: chmod go-w {shown}",
        )


def _line(text: str, where: str) -> Line:
    found = _LINE.fullmatch(text)
    if found is None:
        raise ConfigError("no keyword at the start of the line", where=where)
    keyword = (found[1] if found[1] is not None else found[2]).lower()
    if not found[3]:
        raise ConfigError(f"`{keyword}` without a value", where=where)
    return Line(keyword, found[3], where)
