"""How a failure is recognised in output: the signatures of the table, exceptions, progress.

Ranks write into each other's lines, so a signature is a fragment of one line, never a whole one.
"""

from __future__ import annotations

import re
from bisect import bisect_right

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

# and colours whose escape character got lost where somebody copied them
_CODES = ESCAPE_SEQUENCE + r"|(?:\^\[)?\[\d{1,2}(?:;\d{1,3}){0,4}m"
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
_LOSS = (r"'loss': '?-?\d", r"\b(?:loss|ppl)[ =:]+-?\d+\.\d")
_PROGRESS = (
    *_LOSS,
    r"\d+%\|.*\d+/\d+ \[",
    r"\b(?:[Ss]tep|[Ee]poch|[Ii]ter(?:ation)?|global_step)[ =:]+\d+.*\b(?:loss|lr|ppl)\b",
    r"\bexit ?code:? 0\b",
    r"\" 200 OK$",
    r"^ *\*{3,} .* metrics \*{3,}",
    r"^ *(?:Success|SUCCESS|Done|Finished)\b",
    r"(?:[Tt]raining|shutdown) (?:is )?complete",
)
_HINTS = (
    *("%|", "loss", "ppl", " lr", "xit", " 200 OK", "***", "uccess", "SUCCESS", "Done"),
    *("Finished", "complete"),
)
_BAR = r"\d+%\|.*?(\d+)/(\d+) \["
WARNING = r"Warning: |\bWARN(?:ING)?\b[ \]:|-]|\[W\d* ?|\[W \w+\.cpp|\b(?:INFO|DEBUG)\b[ \]:|-]"
_COMMUNICATION = (
    r"torch/distributed/(?!elastic|launcher|run)|torch/nn/parallel/distributed|deepspeed/comm/"
    r"|multiprocessing/(?:connection|managers)|/ray/|accelerate/utils/operations"
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
    text = compiled(_CODES).sub("", text.replace("\x00", "")).replace("\r\n", "\n")
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

    def __init__(self, signature: Signature, index: int, role: str) -> None:
        self.signature = signature
        self.index = index
        self.role = role


def search(
    lines: list[str], find: Find | None = None, signatures: SignatureTable | None = None
) -> Iterator[Hit]:
    """Yield the signatures on lines, whatever their conditions; at most `REPEATS` lines of each.

    `find` finds the literals of the table in a text; by default they are searched one by one.
    """
    signatures = signatures or table.load()
    lines_by_literal: dict[str, set[int]] = {}
    for index, literal in (find or _finder(signatures))(lines):
        lines_by_literal.setdefault(literal, set()).add(index)
    matches: dict[Signature, set[int]] = {}
    for literal, indexes in lines_by_literal.items():
        ordered = sorted(indexes)
        if len(ordered) > REPEATS:  # the first ones and the last
            ordered = ordered[: REPEATS - 8] + ordered[-8:]
        for signature, pattern in signatures.by_literal[literal]:
            matching = matches.setdefault(signature, set())
            matcher = compiled(pattern)
            matching.update(i for i in ordered if i in matching or matcher.search(lines[i]))
    warning = compiled(WARNING)
    for signature in sorted(matches, key=lambda signature: signature.order):
        can_be_late = signature.role == "root" and not signature.even_as_warning
        for index in sorted(matches[signature]):
            is_warning = can_be_late and warning.search(lines[index]) is not None
            is_late = is_warning and "NCCL WARN" not in lines[index]
            yield Hit(signature, index, "late" if is_late else signature.role)


def _finder(signatures: SignatureTable) -> Find:
    def find(lines: list[str]) -> Iterator[tuple[int, str]]:
        starts, at = [], 0
        for line in lines:
            starts.append(at)
            at += len(line) + 1
        text = "\n".join(lines)
        for literal in signatures.by_literal:
            at = text.find(literal)
            while at >= 0:
                yield bisect_right(starts, at) - 1, literal
                end = text.find("\n", at)
                at = text.find(literal, end) if end >= 0 else -1

    return find


def last_progress(lines: list[str]) -> int:
    """Return the number (from 1) of the last line that shows the job going on; 0 if none does.

    A bar that is drawn once more where it stood, as when an exception closes it, is no progress.
    """
    pattern, bar, raised = compiled("|".join(_PROGRESS)), compiled(_BAR), compiled(EXCEPTION)
    counts: dict[str, str] = {}  # total of a bar -> its last count
    last = 0
    for index, line in enumerate(lines):
        # the hints first, they are fast: most lines show no progress
        if not any(hint in line for hint in _HINTS) or not pattern.search(line) or "nan" in line:
            continue
        state = bar.search(line)
        if state is not None:
            count, total = state.groups()
            before = counts.get(total)
            counts[total] = count
            closed = before is None and index > 0 and raised.match(lines[index - 1])
            if closed or (before or "0") == count or not line.rstrip().endswith("]"):
                continue  # not ending with "]": an error has run into it
        last = index + 1
    return last


def last_loss(lines: list[str]) -> int:
    """Return the number (from 1) of the last line with a loss that is a number; 0 if none is."""
    pattern = compiled("|".join(_LOSS))
    for index in range(len(lines) - 1, -1, -1):
        if "loss" in lines[index] and "nan" not in lines[index] and pattern.search(lines[index]):
            return index + 1
    return 0


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
