"""What the forms of progress in a log have in common. All bytes, no state.

A line is read into a dict: `kind` (how reliable it is: USER, NAMED ...), `step`, and if
present `total`, `epoch`, `epochs`, `eta` (seconds), `scope`. `scope` is what `total` counts:
"run", "epoch", or "bar" (a progress bar that may be the run or only a part of it). `sure` is
whether the line alone shows that it is of training: True, False, or None, where only others can.
Nothing of this is imported before a line looks like progress: the patterns take time to compile.
"""

from __future__ import annotations

import re

from safelaunch.runtime.plain_text import ESCAPE_SEQUENCE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    LogRecord: TypeAlias = dict[str, Any]


# Kinds of lines: where several kinds report different steps, the lowest number wins. BARE is a step
# with nothing beside it that only training prints, LOG a trainer's line without a number of steps.
USER, NAMED, BAR, LINE, COUNT, BARE, EPOCH, LOG = range(8)

# activities before, between and after training: their steps are not progress of the training
CHECKING = re.compile(rb"(?i)eval|valid|\bval\b|\btest|predict|sanity|infer")
OTHER = re.compile(
    rb"(?i)load|\bmap\b|filter|fetch|generat|token|convert|sav(?:e|ing)|writ|extract|process|comput"
    rb"|captur|rollout|shard|dataset|cach|pars|num_proc|resolv|checkpoint|quant|collect|encod|build"
    rb"|prepar|warm|reading|render|compil|pack|truncat|apply|format|prompt|calib|import|copy|index"
    rb"|search|scan|split|merg|^len\b|install|embed|denois|sampling|wait|retry|attempt|connect|bench"
    rb"|profil|tun(?:e|ing) kernel|cluster|clean|delet|remov|receiv|send"
)
EPOCH_NUMBER = re.compile(
    rb"(?i)\bepochs?\W{0,3}(\d{1,7})\b(?![.\d])(?:\s{0,2}(?:/|of)\s{0,2}(\d{1,7}))?"
)
# the merged log's `[3] `, torchrun's `[rank3]: ` and `[default3]:`, Ray's `(actor pid=1, ip=...) `
_ORIGIN = re.compile(
    rb"(?:\[(?:rank|default)?(\d{1,6})\]:? |\([^()\r\n]{0,80}\bpid=\d{1,9}[^()\r\n]{0,80}\) ?)"
)
_ESCAPE = re.compile(ESCAPE_SEQUENCE.encode() + rb"|\x08")
_DAYS = re.compile(rb"(\d{1,4}) days?, ")
_WORDED = re.compile(rb"(?:(\d{1,4})d )?(?:(\d{1,4})h )?(?:(\d{1,4})m )?(\d{1,4})s")  # ms-swift's


def clock(text: bytes) -> float | None:
    """Return the seconds of `05:23`, `1 day, 1:01:46`, `3m 10s`, `90.5s`; None for `?`."""
    text = text.strip()
    worded = _WORDED.fullmatch(text)
    if worded is not None:
        days, hours, minutes, rest = (int(group or 0) for group in worded.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)
    day = _DAYS.match(text)
    parts = text[day.end() if day else 0 :].rstrip(b"s").split(b":")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        return None
    if len(numbers) > 3:  # noqa: PLR2004 - days are not written so by any of these
        return None
    seconds = 0.0
    for number in numbers:
        seconds = seconds * 60 + number
    seconds += int(day.group(1)) * 86400 if day else 0
    return seconds if 0 <= seconds < 1e9 else None  # noqa: PLR2004 - 30 years: no such job


def epoch_fields(epoch: bytes, epochs: bytes | None) -> LogRecord:
    """Return the fields of a record for the epoch in which a line stands."""
    return {"epoch": int(epoch), "epochs": int(epochs) if epochs else None}


def origin(line: bytes) -> tuple[int, bytes]:
    """Return the rank in the prefix of a line (-1: none, the launcher), and the bare line."""
    if b"\x1b" in line or b"\x08" in line:
        line = _ESCAPE.sub(b"", line)
    rank = -1
    for _ in range(3):  # one of each kind
        if line[:1] not in (b"[", b"("):
            break
        match = _ORIGIN.match(line)
        if match is None:
            break
        if match.group(1):
            rank = int(match.group(1))
        line = line[match.end() :]
    return rank, line
