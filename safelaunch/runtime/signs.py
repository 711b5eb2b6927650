r"""How a failure class is recognised in output: short fragments, in several wordings and versions.

Ranks write into each other's lines, so a sign is a fragment of one line and never a whole one. The
patterns keep to what both re2 and Python's re take. They name a mechanism as torch, NCCL, CUDA,
vLLM, Ray, transformers, OpenSSH and bash word it, not one log's sentence.
"""

from __future__ import annotations

from safelaunch.runtime.patterns import SIGNS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterator


LINE_LIMIT = 4000  # characters of one line that are looked at: a line of 1 GiB tells no more
_compiled = {}  # type: dict[str, re.Pattern[str]]

_CODES = r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_=>]"
_PREFIX = (
    r"^(?:\[rank\d+\]: ?|\[[a-z]+\d+\]:|\s*\d{1,4}: |\s*\([\w.:]+,? (?:pid|rank)=[^)]*\) ?"
    r"|[>|] |//|\s*(?:ERROR|CRITICAL) [0-9: .-]+\[?[\w.]+:\d+\] ?)+"
)
# the last line of a traceback: a dotted name that ends like an exception's
_EXCEPTION = (
    r"^ {0,4}((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Failure|Timeout))"
    r"(?:: (.*))?$"
)
_FRAME = r"^ *File \".+\", line \d+, in "
# what a launcher raises because a child failed says nothing about the cause
LAUNCHERS = (
    "ChildFailedError",
    "CalledProcessError",
    "SignalException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "KeyboardInterrupt",
    "SystemExit",
)
_PROGRESS = (
    r"\d+%\|.*\d+/\d+ \[",
    r"'loss': '?-?\d",
    r"\b(?:[Ss]tep|[Ee]poch|[Ii]ter(?:ation)?|global_step)[ =:]+\d+.*\b(?:loss|lr|ppl)\b",
    r"\b(?:loss|ppl)[ =:]+\d+\.\d",
    r"\bexit ?code:? 0\b",
    r"\" 200 OK$",
    r"^ *\*{3,} .* metrics \*{3,}",
    r"^ *(?:Success|SUCCESS|Done|Finished)\b",
    r"(?:[Tt]raining|shutdown) (?:is )?complete",
)
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
    prefix = compiled(_PREFIX)
    return [prefix.sub("", line[:LINE_LIMIT]) for line in plain(text)]


def search(lines: list[str]) -> Iterator[tuple[str, str, int]]:
    """Yield (class, role, line index) of each sign, where it first and last stands."""
    from bisect import bisect_right  # noqa: PLC0415 - only where something failed

    starts, at = [], 0
    for line in lines:
        starts.append(at)
        at += len(line) + 1
    text = "\n".join(lines)
    warning = compiled(_WARNING)
    for name, role, patterns in SIGNS:
        seen = set()
        for pattern in patterns:
            hits = [
                bisect_right(starts, hit.start()) - 1 for hit in compiled(pattern).finditer(text)
            ]
            seen.update(hits[:1] + hits[-1:])
        for index in sorted(seen):
            mere = role == "root" and warning.search(lines[index]) is not None
            yield name, "late" if mere and "NCCL WARN" not in lines[index] else role, index


def exceptions(lines: list[str]) -> Iterator[int]:
    """Yield the index of each line that ends a traceback, launchers' own left out."""
    pattern = compiled(_EXCEPTION)
    for index, line in enumerate(lines):
        hit = pattern.match(line)
        if hit and hit.group(1).rpartition(".")[2] not in LAUNCHERS:
            yield index


def is_frame(line: str) -> bool:
    """Whether a line is a frame of a Python traceback."""
    return compiled(_FRAME).match(line) is not None


def last_progress(lines: list[str]) -> int:
    """Return the number (from 1) of the last line that shows the job going on; 0 if none does."""
    pattern = compiled("|".join(_PROGRESS))
    for index in range(len(lines) - 1, -1, -1):
        if pattern.search(lines[index]) and "nan" not in lines[index]:
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
