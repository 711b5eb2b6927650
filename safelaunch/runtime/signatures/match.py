r"""How a failure is recognised in output: the signatures of the table, exceptions, progress.

Ranks write into each other's lines, so a signature is a fragment of one line, never a whole one.
"""

from __future__ import annotations

from safelaunch.runtime.plain_text import ESCAPE_SEQUENCE
from safelaunch.runtime.signatures import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Iterator

    from safelaunch.runtime.signatures.table import Signature, Table

    # which literal texts stand in which lines: (index, literal), in any order
    Find = Callable[[list[str]], Iterable[tuple[int, str]]]


LINE_LIMIT = 4000  # characters of one line that are looked at: a line of 1 GiB tells no more
REPEATS = 64  # lines with one literal text that are looked at
_compiled = {}  # type: dict[str, re.Pattern[str]]

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
_WARNING = r"Warning: |\bWARN(?:ING)?\b[ \]:|-]|\[W\d* ?|\[W \w+\.cpp|\b(?:INFO|DEBUG)\b[ \]:|-]"
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
    found = []
    for line in text.split("\n"):
        states = [part for part in line.split("\r") if part.strip()] if "\r" in line else [line]
        found.append(states[-1] if states else "")
    return found


def clean(text: str) -> list[str]:
    """Return the lines without control codes and rank prefixes, bars in their last state."""
    return [line for line, _ in map(parted, plain(text))]


def parted(line: str) -> tuple[str, str]:
    """Return a plain line without its prefix, and whose it is: `3` (a rank), `pid=9` or ""."""
    head = compiled(_PREFIX).match(line)
    if head is None:
        return line[:LINE_LIMIT], ""
    said = compiled(_RANK).search(head.group(0))
    whose = next((one for one in said.groups() if one), "") if said else ""
    return line[head.end() : head.end() + LINE_LIMIT], whose


class Hit(object):
    """A signature on a line; `role` is the signature's, or `late` where the line only warns."""

    __slots__ = ("index", "role", "signature")

    def __init__(self, signature: Signature, index: int, role: str) -> None:
        self.signature = signature
        self.index = index
        self.role = role


def streams(text: str) -> list[str]:
    """Return whose each line is, as its prefix tells: `3` is rank 3, `pid=9`, "" nobody's."""
    prefix, rank = compiled(_PREFIX), compiled(_RANK)
    found = []
    for line in plain(text):
        head = prefix.match(line)
        said = rank.search(head.group(0)) if head else None
        found.append(next((one for one in said.groups() if one), "") if said else "")
    return found


def search(
    lines: list[str], find: Find | None = None, signatures: Table | None = None
) -> Iterator[Hit]:
    """Yield the signatures on lines, conditions not yet judged; at most `REPEATS` lines of each.

    `find` finds the literals of the table in a text; without it they are looked for one by one.
    """
    known = signatures or table.load()
    places = {}  # type: dict[str, set[int]]
    for index, literal in (find or _finder(known))(lines):
        places.setdefault(literal, set()).add(index)
    found = {}  # type: dict[Signature, set[int]]
    for literal, indexes in places.items():
        for signature, pattern in known.by_literal[literal]:
            matching = found.setdefault(signature, set())
            matcher = compiled(pattern)
            matching.update(i for i in _few(indexes) if i in matching or matcher.search(lines[i]))
    warning = compiled(_WARNING)
    for signature in sorted(found, key=lambda one: one.order):
        for index in sorted(found[signature]):
            firm = signature.role != "root" or signature.even_as_warning
            mere = not firm and warning.search(lines[index]) is not None
            late = mere and "NCCL WARN" not in lines[index]
            yield Hit(signature, index, "late" if late else signature.role)


def _finder(known: Table) -> Find:
    from bisect import bisect_right  # noqa: PLC0415 - only where something failed

    def find(lines: list[str]) -> Iterator[tuple[int, str]]:
        starts, at = [], 0
        for line in lines:
            starts.append(at)
            at += len(line) + 1
        text = "\n".join(lines)
        for literal in known.by_literal:
            at = text.find(literal)
            while at >= 0:
                yield bisect_right(starts, at) - 1, literal
                end = text.find("\n", at)
                at = text.find(literal, end) if end >= 0 else -1

    return find


def _few(indexes: set[int]) -> list[int]:
    """Return the lines that are looked at of those with a literal: the first ones and the last."""
    if len(indexes) <= REPEATS:
        return sorted(indexes)
    ordered = sorted(indexes)
    return ordered[: REPEATS - 8] + ordered[-8:]


def last_progress(lines: list[str]) -> int:
    """Return the number (from 1) of the last line that shows the job going on; 0 if none does.

    A bar that is drawn once more where it stood, as when it is closed by an exception, is none.
    """
    pattern, bar, raised = compiled("|".join(_PROGRESS)), compiled(_BAR), compiled(EXCEPTION)
    drawn = {}  # type: dict[str, str]
    last = 0
    for index, line in enumerate(lines):
        if not any(hint in line for hint in _HINTS):
            continue  # quickly: most lines are no progress
        if not pattern.search(line) or "nan" in line:
            continue
        state = bar.search(line)
        if state is not None:
            count, total = state.groups()
            was = drawn.get(total)
            drawn[total] = count
            closed = was is None and index > 0 and raised.match(lines[index - 1])
            if closed or (was or "0") == count or not line.rstrip().endswith("]"):
                continue  # the last one: an error has run into it
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
    """Whether an exception came out of communication: it may be a consequence of a peer's end."""
    name = kind.rpartition(".")[2]
    if name in _PEER_ERRORS or name.startswith("Dist"):
        return True
    files = [line for line in traceback.split("\n") if line.lstrip().startswith('File "')]
    return bool(files) and compiled(_COMMUNICATION).search(files[-1].replace("\\", "/")) is not None


def compiled(pattern: str) -> re.Pattern[str]:
    """Return a compiled pattern (MULTILINE); each is compiled once."""
    import re  # noqa: PLC0415 - the supervisor's start does without

    found = _compiled.get(pattern)
    if found is None:
        found = _compiled[pattern] = re.compile(pattern, re.MULTILINE)
    return found
