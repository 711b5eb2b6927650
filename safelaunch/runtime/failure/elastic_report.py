"""Parses the block with which torchrun says which ranks failed: ChildFailedError.

Known wordings: torch 1.9 (`Root Cause:` first, `msg:`), 1.11 to 2.13 (`Failures:`, then
`Root Cause (first observed failure):`), rank prefixes before each line, a rich box around it.
torchrun's own idea of who was first is recorded, not believed: its times are whole seconds.
"""

from __future__ import annotations

import signal

from safelaunch.runtime.records import Record
from safelaunch.runtime.signatures import match

_FIELD = r"^\s*(time|host|rank|exitcode|error_file|traceback|msg)\s*: ?(.*)$"
_ENTRY_OR_RULE = r"^\s*(?:\[\d+\]:|[-=*]{20,})\s*$"
_TITLE = r"^\s*\S.* FAILED\s*$"
# numbers of at most 11 digits: more are garbage
_CODE = r"(?<![-\d])(-?\d{1,11})\s*\(pid: ?(\d{1,11})\)"
_RANK = r"(?<!\d)(\d{1,11})(?!\d)"
_SIGNALLED = r"Sending process (\d{1,11}) closing signal"
_AGENT = r"failed \(exitcode: (-?\d{1,11})\) local_rank: (\d{1,11}) \(pid: (\d{1,11})\)"


class ElasticFailure(Record):
    """How one rank ended, as torchrun's block says.

    rank: rank
    code: exit code, as shells count it: 137 for SIGKILL
    signal: name of the signal that ended it
    pid: process id
    host: host name
    time: local time, whole seconds
    traceback: traceback of its exception, or the message
    first: whether torchrun takes it for the first failure
    """

    rank: int = 0
    code: int = 0
    signal: str = ""
    pid: int = 0
    host: str = ""
    time: str = ""
    traceback: str = ""
    first: bool = False


def parse(text: str) -> dict[int, ElasticFailure]:
    """Return {rank: failure} of the last block in launcher output; empty where there is none.

    Without a block, the agent's line `failed (exitcode: ...)` gives one by its local rank.
    """
    if "exitcode" not in text:  # of block and line; to compile the patterns takes 6 ms
        return {}
    lines = [_unboxed(line) for line in match.clean(text)]
    start = _last_block(lines)
    failures = {} if start is None else _read_block(lines[start:])
    if failures:
        return failures
    for line in lines:
        agent = match.compiled(_AGENT).search(line)
        if agent:
            code, rank, pid = map(int, agent.groups())
            failures[rank] = _failure(rank, code, pid, {}, first=True)
    return failures


def signalled_pids(text: str) -> set[int]:
    """Return the pids to which torchrun's agent says that it has sent a signal."""
    if "closing signal" not in text:
        return set()
    return {int(pid) for pid in match.compiled(_SIGNALLED).findall(text)}


def before_agent(text: str) -> str:
    """Return what stands in a launcher's log before its agent's lines on the last failure."""
    at = [hit.start() for hit in match.compiled(_AGENT).finditer(text)]
    return text[: text.rfind("\n", 0, at[-1]) + 1] if at else text


def signal_name(number: int) -> str:
    """Return SIGKILL for 9, `signal 77` for what has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _read_block(lines: list[str]) -> dict[int, ElasticFailure]:
    failures = {}
    fields: dict[str, str] = {}
    name, is_first = "", False
    for line in [*lines, "-" * 20]:
        if "Root Cause" in line:
            is_first = True
        elif "Failures:" in line:  # also `Other Failures:`
            is_first = False
        field = match.compiled(_FIELD).match(line)
        if match.compiled(_ENTRY_OR_RULE).match(line):
            code = match.compiled(_CODE).search(fields.get("exitcode", ""))
            rank = match.compiled(_RANK).search(fields.get("rank", ""))
            if code and rank:
                number = int(rank.group(1))
                pid = int(code.group(2))
                failures[number] = _failure(number, int(code.group(1)), pid, fields, first=is_first)
            fields, name = {}, ""
        elif field and not (name == "traceback" and field.group(1) in ("time", "host", "msg")):
            name = "traceback" if field.group(1) == "msg" else field.group(1)
            fields[name] = field.group(2).strip()
        elif name == "traceback":
            fields[name] += "\n" + line.rstrip()
    return failures


def _failure(
    rank: int, code: int, pid: int, fields: dict[str, str], *, first: bool
) -> ElasticFailure:
    text = fields.get("traceback", "").strip()
    return ElasticFailure(
        rank=rank,
        code=128 - code if code < 0 else code,
        signal=signal_name(-code) if code < 0 else "",
        pid=pid,
        host=fields.get("host", ""),
        time=fields.get("time", ""),
        traceback="" if text.startswith("To enable traceback see") else _dedented(text),
        first=first,
    )


def _dedented(text: str) -> str:
    """Remove the two blanks that torchrun puts before each further line of a traceback."""
    lines = text.split("\n")
    indented = all(line.startswith("  ") or not line for line in lines[1:])
    return "\n".join([lines[0], *(line[2:] for line in lines[1:])]) if indented else text


def _unboxed(line: str) -> str:
    """Return what stands inside a box of rich."""
    if "\u2502" in line or "\u2503" in line:
        return line.strip().strip("\u2502\u2503").rstrip()
    return line


def _last_block(lines: list[str]) -> int | None:
    for index in range(len(lines) - 1, -1, -1):
        if "Root Cause" in lines[index]:
            # 1.9 has the root cause first, later versions last: begin at the title above both
            for above in range(index, -1, -1):
                if match.compiled(_TITLE).match(lines[above]) or "ChildFailedError" in lines[above]:
                    return above
            return max(0, index - 1)
    return None
