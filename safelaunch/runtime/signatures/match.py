"""How a failure is recognised in output: the signatures of the table, exceptions, warnings.

Ranks write into each other's lines, so a signature is a fragment of one line, never a whole one.
"""

from __future__ import annotations

import re

from safelaunch.runtime.plain_text import ESCAPE_SEQUENCE
from safelaunch.runtime.signatures import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from safelaunch.runtime.signatures.table import Signature, SignatureTable

    # returns which literal texts stand in which lines: (index, literal), in any order
    Find = Callable[[list[str]], Iterable[tuple[int, str]]]


LINE_LIMIT = 4000  # characters of one line that are searched: a line of 1 GiB shows no more
REPEATS = 64  # lines with one literal text that are searched
_compiled: dict[str, re.Pattern[str]] = {}

# of colours whose escape character got lost where somebody copied them
_BARE_CODE = r"\[\d{1,2}(?:;\d{1,3}){0,4}m"
_CODES = ESCAPE_SEQUENCE + r"|\^\[" + _BARE_CODE
# torchrun, our own merged log, mpirun, srun -l, pdsh, Ray, compose, docker, vLLM, quotes
_PREFIX = (
    r"^(?:\[rank\d+\]: ?|\[[a-z]+\d+\]:|\[\d{1,5}\] |\[\d+,\d+\]<std(?:out|err)>: ?"
    r"|\s*\d{1,4}: |[a-z][\w.-]{0,40}\d: |\s*\([\w.:]+,? (?:pid|rank)=[^)]*\) ?|[\w.-]{1,40} +\| "
    r"|\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:?\d\d) (?:std(?:out|err) [FP] )?"
    r"|[>|] |//|\s*(?:ERROR|CRITICAL) [0-9: .-]+\[?[\w.]+:\d+\] ?)+"
)
# the last line of a traceback: a dotted name that ends like an exception's
EXCEPTION = (
    r"^ {0,4}((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failure|Timeout))"
    r"(?:: (.*))?$"
)
_RANK = (
    r"rank(\d+)|default(\d+)|^\s*(\d{1,4}): |\[(\d{1,5})\] |\[\d+,(\d+)\]<"
    r"|[ ,(]((?:pid|rank)=\d+)"
)
WARNING = r"Warning: |\bWARN(?:ING)?\b[ \]:|-]|\[W\d* ?|\[W \w+\.cpp|\b(?:INFO|DEBUG)\b[ \]:|-]"
# a program says that it does without something
_FALLBACK = (
    r"(?i)\bignor(?:e|es|ed|ing)\b|\bf[ae]ll(?:s|ing)? ?back\b|\bfallback\b|\bcontinu(?:e|es|ing)\b"
    r"|\busing \S.{0,80} instead\b|\bskipp(?:ed|ing)\b|\bretry(?:ing)?\b|\bwill (?:use|be) "
)
_RETRY = r"(?i)\bretrying\b"  # in the line below
_COMMUNICATION = (
    r"torch/distributed/(?!elastic|launcher|run)|torch/nn/parallel/distributed|deepspeed/comm/"
    r"|multiprocessing/(?:connection|managers)|-packages/ray/|accelerate/utils/operations"
)
_PEER_ERRORS = (
    "ConnectionError",
    "ConnectionResetError",
    "ConnectionAbortedError",
    "ConnectionRefusedError",
    "BrokenPipeError",
    "EOFError",
    "TimeoutError",
)


def plain(text: str) -> list[str]:
    """Return the lines as a terminal shows them: no control codes, bars in their last state."""
    text = text.replace("\x00", "").replace("\r\n", "\n")
    if "\x1b" in text or "^[" in text:
        text = compiled(_CODES).sub("", text)
    text = compiled(_BARE_CODE).sub("", text)  # begins with a literal: fast on most text
    lines = []
    for line in text.split("\n"):
        states = [part for part in line.split("\r") if part.strip()] if "\r" in line else [line]
        lines.append(states[-1] if states else "")
    return lines


def clean(text: str) -> list[str]:
    """Return the lines without control codes and rank prefixes, bars in their last state."""
    return [line for line, _ in map(split_prefix, plain(text))]


def split_prefix(line: str) -> tuple[str, str]:
    """Return a plain line without its prefix, and who wrote it: `3` (a rank), `pid=9` or ""."""
    prefix = compiled(_PREFIX).match(line)
    if prefix is None:
        return line[:LINE_LIMIT], ""
    rank = compiled(_RANK).search(prefix.group(0))
    writer = next((group for group in rank.groups() if group), "") if rank else ""
    return line[prefix.end() : prefix.end() + LINE_LIMIT], writer


class Hit:
    """A signature on a line; `role` is the signature's, or `late` where the line only warns."""

    def __init__(self, signature: Signature, index: int, is_warning: bool) -> None:
        self.signature = signature
        self.index = index
        self.is_warning = is_warning
        self.role = "late" if is_warning and signature.role == "root" else signature.role


def search(
    lines: list[str], find: Find | None = None, signatures: SignatureTable | None = None
) -> Iterator[Hit]:
    """Yield the signatures on lines, whatever their conditions; at most `REPEATS` lines of each.

    `find` finds the literals of the table in a text; by default they are looked up.
    """
    signatures = signatures or table.load()
    lines_by_literal: dict[str, set[int]] = {}
    for index, literal in find(lines) if find else _find(lines, signatures):
        lines_by_literal.setdefault(literal, set()).add(index)
    matches: dict[Signature, set[int]] = {}
    for literal, indexes in lines_by_literal.items():
        ordered = first_and_last(sorted(indexes))
        for signature, pattern in signatures.by_literal[literal]:
            matching = matches.setdefault(signature, set())
            matcher = compiled(pattern)
            matching.update(i for i in ordered if i in matching or matcher.search(lines[i]))
    for signature in sorted(matches, key=lambda signature: signature.order):
        for index in sorted(matches[signature]):
            is_warning = not signature.even_as_warning and _is_warning(*lines[index : index + 2])
            yield Hit(signature, index, is_warning)


def first_and_last(indexes: list[int]) -> list[int]:
    """Return at most `REPEATS` of some indexes: the first ones, and the last."""
    return indexes if len(indexes) <= REPEATS else indexes[: REPEATS - 8] + indexes[-8:]


def _is_warning(line: str, below: str = "") -> bool:
    """Whether a line only warns: by its level, or as the program says how it does without."""
    if compiled(WARNING).search(line) is not None:
        return "NCCL WARN" not in line
    if compiled(_RETRY).search(below) is not None:
        return True
    return compiled(_FALLBACK).search(line) is not None and not compiled(EXCEPTION).match(line)


def _find(lines: list[str], signatures: SignatureTable) -> Iterator[tuple[int, str]]:
    # one look-up for each place of a line: to search for each literal takes ten times as long
    size, literals = signatures.start_size, signatures.literals_by_start
    for index, line in enumerate(lines):
        for at in range(len(line) - size + 1):
            for literal in literals.get(line[at : at + size], ()):
                if line.startswith(literal, at):
                    yield index, literal


def communicates(kind: str, traceback: str) -> bool:
    """Whether an exception came out of communication: a peer's end may be its cause."""
    name = kind.rpartition(".")[2]
    if name in _PEER_ERRORS or name.startswith("Dist"):
        return True
    files = [line for line in traceback.split("\n") if line.lstrip().startswith('File "')]
    return bool(files) and compiled(_COMMUNICATION).search(files[-1].replace("\\", "/")) is not None


def compiled(pattern: str) -> re.Pattern[str]:
    """Return a compiled pattern (MULTILINE); each is compiled once."""
    if pattern not in _compiled:
        _compiled[pattern] = re.compile(pattern, re.MULTILINE)
    return _compiled[pattern]
