"""What programs print that only work on their arguments and their input. Others are Unresolved.

Nothing is run: the script might have put another program of that name onto PATH.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from safelaunch.importer.activities import SHOWS, describe, find_action
from safelaunch.importer.budget import LONGEST_VALUE
from safelaunch.importer.findings import Counted, Unresolved

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.importer.state import State

    Program = Callable[[list[str], str, State], str]


# Python that looks for a port: its text, or the name of its file
_FREE_PORT = re.compile(r"\bsocket\b|\brandom\b|free_?port|ports?\.py$", re.IGNORECASE)
# what programs do that make no folder that a script changes to, but for some of them
_MAKING_NONE = (
    SHOWS, "installs packages", "logs in", "removes files", "ends processes",
    "loads modules", "sets a limit", "starts Ray",
)  # fmt: skip
_MAKERS = frozenset(("make", "cmake", "ninja", "npm", "uv", "poetry", "conda", "mamba"))
_EACH_GPU = re.compile(
    r"nvidia-smi (-L|--list-gpus|--query-gpu=[a-z_.,]+ --format=csv,noheader(,nounits)?)"
)
_TORCH_COUNT = re.compile(
    r"-c \s*import torch\s*[;\n]\s*print\(torch\.cuda\.device_count\(\)\);?\s*"
)
_DIFFERING = frozenset((
    "nvidia-smi", "shuf", "date", "hostname", "scontrol", "uuidgen", "od", "jot", "mktemp", "ss",
    "netstat", "lsof", "nc", "fuser",
))  # fmt: skip


def output(words: list[str], state: State) -> str | Unresolved:
    """Return what a program writes to its output."""
    name, arguments = words[0], words[1:]
    program = PROGRAMS.get(name)
    unresolved = state.fail(f"the output of `{describe(words)}`", differs=differs(words, state))
    if program is None:
        return unresolved.as_counted(_counted_by(words))
    if not all(word.isascii() for word in arguments):
        return unresolved
    takes_input = name in FILTERS
    if takes_input and isinstance(state.input, Unresolved):
        return _filtered(words, state.input)
    text = state.input if takes_input and isinstance(state.input, str) else ""
    if not text.isascii() or (takes_input and state.input is None):
        return unresolved
    try:
        return program(arguments, text, state)
    except (ValueError, LookupError, re.error):
        return unresolved


def differs(words: Sequence[str], state: State) -> bool:
    """Whether a program prints something else at each start, or on each machine."""
    if os.path.basename(words[0]).startswith("python"):
        text = state.input if isinstance(state.input, str) else ""
        return _counted_by(words) is not None or any(map(_FREE_PORT.search, (*words[1:], text)))
    if words[0] in FILTERS:
        return isinstance(state.input, Unresolved) and state.input.differs
    return words[0] in _DIFFERING


def _filtered(words: list[str], text: Unresolved) -> Unresolved:
    """Return what a filter makes of a text that is not known."""
    content = text.content
    is_word = content is None or (isinstance(content, str) and len(content.split()) == 1)
    if not is_word and text.counted is None:
        return text.as_unmarked()
    return text.with_content(None).as_counted(_counted(words, text.counted))


def _counted(words: list[str], counted: Counted | None) -> Counted | None:
    """Return what a filter leaves of what its input says about GPUs."""
    if words == ["wc", "-l"] and counted is Counted.A_LINE_EACH:
        return Counted.NUMBER
    is_same = words in (["cat"], ["tr", "-d", " "], ["tr", "-d", "[:space:]"])
    return counted if is_same and counted is Counted.NUMBER else None


def _counted_by(words: Sequence[str]) -> Counted | None:
    """Return what a program says about GPUs that reads nothing."""
    if _EACH_GPU.fullmatch(" ".join(words)):
        return Counted.A_LINE_EACH
    is_python = os.path.basename(words[0]).startswith("python")
    return Counted.NUMBER if is_python and _TORCH_COUNT.fullmatch(" ".join(words[1:])) else None


def may_make_folders(words: Sequence[str]) -> bool:
    """Whether a program may make a folder that a script changes to, other than by `mkdir`."""
    action = find_action(words)
    if words[0] == "mkdir":
        return "VALUE" in words  # it is not known which
    is_harmless = action is not None and action.text in _MAKING_NONE and words[0] not in _MAKERS
    return words[0] not in PROGRAMS and not is_harmless


def status(name: str, output: str) -> int:
    """Return the exit code of a program that has written this."""
    if name == "grep":
        return 0 if output else 1
    if name == "expr":
        return 1 if output.strip() in ("", "0") else 0
    return 0


def _plain(arguments: list[str]) -> list[str]:
    """Return arguments of which none is an option."""
    rest = arguments[1:] if arguments[:1] == ["--"] else arguments
    if any(word.startswith("-") for word in rest):
        raise ValueError(rest)
    return rest


def _basename(arguments: list[str], _input: str, _state: State) -> str:
    path, *suffix = _plain(arguments)
    name = os.path.basename(path.rstrip("/")) or path[:1]
    if len(suffix) > 1:
        raise ValueError(suffix)
    return (name.removesuffix(suffix[0]) if suffix and name != suffix[0] else name) + "\n"


def _dirname(arguments: list[str], _input: str, _state: State) -> str:
    (path,) = _plain(arguments)
    if "//" in path:
        raise ValueError(path)
    return (os.path.dirname(path.rstrip("/")) or (path[:1] if path[:1] == "/" else ".")) + "\n"


def _realpath(arguments: list[str], _input: str, state: State) -> str:
    (path,) = _plain(arguments)
    path = os.path.join(state.where(), path)
    if not os.path.isdir(os.path.dirname(path.rstrip("/")) or "/"):  # it may print nothing then
        raise ValueError(path)
    return os.path.realpath(path) + "\n"


def _readlink(arguments: list[str], _input: str, state: State) -> str:
    if arguments[:1] != ["-f"]:
        raise ValueError(arguments)
    return _realpath(arguments[1:], "", state)


_EXPR: dict[str, Callable[[int, int], int]] = {
    "+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y,
    "/": lambda x, y: x // y, "%": lambda x, y: x % y,
}  # fmt: skip


def _expr(arguments: list[str], _input: str, _state: State) -> str:
    """Return what `expr 8 / 2 / 2` prints: operators of one rank, from left to right."""
    operators = arguments[1::2]
    numbers = [int(word) for word in arguments[::2]]
    one_rank = set(operators) <= {"+", "-"} or set(operators) <= {"*", "/", "%"}
    if not one_rank or not operators or len(numbers) != len(operators) + 1:
        raise ValueError(arguments)
    value = numbers[0]
    for operator, number in zip(operators, numbers[1:], strict=True):
        if operator in ("/", "%") and (min(value, number) < 0 or not number):
            raise ValueError(arguments)
        value = _EXPR[operator](value, number)
    return f"{value}\n"


_MOST_NUMBERS = 10_000


def _seq(arguments: list[str], _input: str, _state: State) -> str:
    separator = "\n"
    if arguments[0] == "-s":
        separator, arguments = arguments[1], arguments[2:]
    elif arguments[0].startswith("-s"):
        separator, arguments = arguments[0][2:], arguments[1:]
    numbers = [int(word) for word in arguments]
    first = numbers[0] if len(numbers) > 1 else 1
    step, last = numbers[1:-1] or [1], numbers[-1]
    padded = any(str(n) != w for n, w in zip(numbers, arguments, strict=True))
    if padded or len(step) > 1:
        raise ValueError(arguments)
    values = range(first, last + (1 if step[0] > 0 else -1), step[0])
    if len(values) > _MOST_NUMBERS:
        raise ValueError(arguments)
    return separator.join(map(str, values)) + "\n" if values else ""


def _characters(text: str) -> str:
    """Return the characters of a set of `tr`."""
    text = text.replace("[:lower:]", "a-z").replace("[:upper:]", "A-Z").replace("[:digit:]", "0-9")
    text = re.sub(r"\\([nt\\])", lambda m: {"n": "\n", "t": "\t", "\\": "\\"}[m[1]], text)
    if re.search(r"\\|\[", text):
        raise ValueError(text)
    text = re.sub(r"(.)-(.)", lambda m: "".join(map(chr, range(ord(m[1]), ord(m[2]) + 1))), text)
    if not text:
        raise ValueError(text)
    return text


def _tr(arguments: list[str], text: str, _state: State) -> str:
    if arguments[0] == "-d":
        (characters,) = map(_characters, arguments[1:])
        return "".join(c for c in text if c not in characters)
    if arguments[0] in ("-cd", "-dc"):
        (characters,) = map(_characters, arguments[1:])
        return "".join(c for c in text if c in characters)
    classes = [re.findall(r"\[:\w+:\]", word) != [] for word in arguments]
    if any(classes) and not all(classes):
        raise ValueError(arguments)
    old, new = map(_characters, _plain(arguments))
    new += new[-1] * (len(old) - len(new))
    return text.translate({ord(c): new[old.rindex(c)] for c in old})


def _wc(arguments: list[str], text: str, _state: State) -> str:
    (option,) = arguments
    counts = {"-l": text.count("\n"), "-w": len(text.split()), "-c": len(text), "-m": len(text)}
    return f"{counts[option]}\n"


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _ended(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _cut(arguments: list[str], text: str, _state: State) -> str:
    """Return what `cut -d/ -f2-` prints: fields of each line, in their order."""
    joined = "\0".join(arguments)
    match = re.fullmatch(r"-d\0?(.)\0-f\0?([\d,-]+)|-f\0?([\d,-]+)\0-d\0?(.)", joined, re.DOTALL)
    if match is None or match[1] == "\0":
        raise ValueError(arguments)
    delimiter, ranges = match[1] or match[4], _ranges(match[2] or match[3])
    rows = [line.split(delimiter) for line in _lines(text)]
    return _ended([delimiter.join(_fields(row, ranges)) for row in rows])


def _fields(row: list[str], ranges: list[tuple[int, int]]) -> list[str]:
    """Return the fields in ranges; all of a line without the delimiter."""
    if len(row) == 1:
        return row
    return [
        item for at, item in enumerate(row, 1) if any(first <= at <= last for first, last in ranges)
    ]


def _ranges(text: str) -> list[tuple[int, int]]:
    """Return the ranges of `1,3-4,6-`."""
    pairs = [part.partition("-") for part in text.split(",")]
    ranges = [
        (int(first or 1), int(last) if last else sys.maxsize if dash else int(first))
        for first, dash, last in pairs
        if first or last
    ]
    if len(ranges) < len(pairs) or any(not 0 < first <= last for first, last in ranges):
        raise ValueError(text)
    return ranges


def _rev(arguments: list[str], text: str, _state: State) -> str:
    if arguments:
        raise ValueError(arguments)
    return _ended([line[::-1] for line in _lines(text)])


def _head(arguments: list[str], text: str, _state: State) -> str:
    return _ended(_lines(text)[: _count(arguments)])


def _tail(arguments: list[str], text: str, _state: State) -> str:
    count = _count(arguments)
    return _ended(_lines(text)[-count:] if count else [])


def _count(arguments: list[str]) -> int:
    match = re.fullmatch(r"-n?\0?(\d+)", "\0".join(arguments) or "-10")
    if match is None:
        raise ValueError(arguments)
    return int(match[1])


def _sed(arguments: list[str], text: str, _state: State) -> str:
    """Return what `sed s/x/y/g` with plain characters prints."""
    (script,) = _plain(arguments[1:] if arguments[:1] == ["-e"] else arguments)
    end = re.fullmatch(r"s(.)([,:;/ ])\$\1\1", script)
    if end is not None and end[1] != end[2]:
        return _ended([line.removesuffix(end[2]) for line in _lines(text)])
    match = re.fullmatch(r"s(.)((?:(?!\1)[\w ,:./=@-])*)\1((?:(?!\1)[\w ,:./=@-])*)\1(g?)", script)
    if match is None or not match[2] or "." in match[2]:
        raise ValueError(script)
    count = -1 if match[4] else 1
    if text.count(match[2]) * len(match[3]) > LONGEST_VALUE:
        raise ValueError(script)
    return _ended([line.replace(match[2], match[3], count) for line in _lines(text)])


def _awk(arguments: list[str], text: str, _state: State) -> str:
    """Return what `awk -F, '{print NF}'` prints."""
    match = re.fullmatch(
        r"(?:-F\0?([,:;/=_-])\0)?\{ *print (?:(NF)|\$(\d+|NF)) *;? *\}", "\0".join(arguments)
    )
    if match is None:
        raise ValueError(arguments)
    rows = [line.split(match[1]) if line else [] for line in _lines(text)]
    if match[2]:
        return _ended([str(len(row)) for row in rows])
    number = match[3]
    if number == "0" or not all(rows):
        raise ValueError(arguments)
    at = [len(row) if number == "NF" else int(number) for row in rows]
    return _ended([row[n - 1] if n <= len(row) else "" for row, n in zip(rows, at, strict=True)])


def _grep(arguments: list[str], text: str, _state: State) -> str:
    option, word = arguments
    if option != "-o" or not re.fullmatch(r"[\w,:]+", word):
        raise ValueError(arguments)
    return _ended([word for line in _lines(text) for _ in range(line.count(word))])


def _sort(arguments: list[str], text: str, _state: State) -> str:
    """Return sorted numbers, which each language sorts alike."""
    options = "".join(word[1:] for word in arguments)
    lines = _lines(text)
    if any(not re.fullmatch("-[nru]+", word) for word in arguments):
        raise ValueError(arguments)
    if len(lines) > 1 and not all(re.fullmatch(r"0|[1-9]\d{,14}", line) for line in lines):
        raise ValueError(lines)
    if "u" in options:
        lines = list(dict.fromkeys(lines))
    return _ended(_ordered(lines, options))


def _ordered(lines: list[str], options: str) -> list[str]:
    if len(lines) < 2:  # noqa: PLR2004 - nothing to sort
        return lines
    return sorted(lines, key=int if "n" in options else None, reverse="r" in options)


def _uniq(arguments: list[str], text: str, _state: State) -> str:
    lines = _lines(text)
    if arguments:
        raise ValueError(arguments)
    return _ended(
        [line for line, before in zip(lines, [None, *lines], strict=False) if line != before]
    )


def _paste(arguments: list[str], text: str, _state: State) -> str:
    """Return lines joined by `paste -sd,`, also with `-` for its input."""
    match = re.fullmatch(
        r"(?:-sd\0?|-s\0-d\0?|-d\0?(?P<d>.)\0-s)(?P<e>[^\\\0])?(?:\0-)?", "\0".join(arguments)
    )
    delimiter = (match["d"] or match["e"]) if match is not None else None
    if delimiter is None or "\\" in delimiter:
        raise ValueError(arguments)
    return _ended([delimiter.join(_lines(text))])


def _cat(arguments: list[str], text: str, _state: State) -> str:
    if arguments not in ([], ["-"]):
        raise ValueError(arguments)
    return text


FILTERS: dict[str, Program] = {
    "tr": _tr, "wc": _wc, "cut": _cut, "head": _head, "tail": _tail, "sed": _sed, "awk": _awk,
    "grep": _grep, "cat": _cat, "sort": _sort, "uniq": _uniq, "paste": _paste,
    "rev": _rev,
}  # fmt: skip
PROGRAMS: dict[str, Program] = {
    **FILTERS,
    "basename": _basename, "dirname": _dirname, "realpath": _realpath, "readlink": _readlink,
    "expr": _expr, "seq": _seq,
}  # fmt: skip
