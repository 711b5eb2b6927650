"""Parses the block with which torchrun says which ranks failed: ChildFailedError.

Text in, data out. Known wordings: torch 1.9 (`Root Cause:` first, `msg:`), 1.11 to 2.13
(`Failures:`, then `Root Cause (first observed failure):`), rank prefixes before each line, a rich
box round it.
torchrun's own idea of who was first is only told, not believed: its times are whole seconds.
"""

from __future__ import annotations

from safelaunch.runtime.signatures import match

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_FIELD = r"^\s*(time|host|rank|exitcode|error_file|traceback|msg)\s*: ?(.*)$"
_ENTRY = r"^\s*\[\d+\]:\s*$"
_RULE = r"^\s*[-=*]{20,}\s*$"
_TITLE = r"^\s*\S.* FAILED\s*$"
_CODE = r"(-?\d+)\s*\(pid: ?(\d+)\)"
_RANK = r"(\d+)(?:\s*\(local_rank: ?(\d+)\))?"
_ASKED = r"Sending process (\d+) closing signal"
_AGENT = r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: (\d+)\)"


def parse(text: str) -> dict[int, dict[str, Any]]:
    """Return {rank: entry} of the last block in launcher output; empty where there is none.

    An entry has rank, local_rank, exitcode (as torchrun says it: -9 is SIGKILL), code (as shells
    say it: 137), signal ("" or its name), pid, host, time (text, whole seconds), error_file,
    traceback (or the message), first (torchrun thinks so). Without a block, the agent's line
    `failed (exitcode: ...)` gives an entry by its local rank.
    """
    lines = [_unboxed(line) for line in match.clean(text)]
    entries = {}  # type: dict[int, dict[str, Any]]
    at = _last_block(lines)
    if at is not None:
        _Reader(entries).read(lines[at:])
    return entries or _agent(lines)


def asked(text: str) -> set[int]:
    """Return the pids that torchrun's agent says it has sent a signal to."""
    return {int(pid) for pid in match.compiled(_ASKED).findall(text) if len(pid) < 12}  # noqa: PLR2004 - as below


def before_agent(text: str) -> str:
    """Return what stands in a launcher's log before its agent's words on the last failure."""
    at = [hit.start() for hit in match.compiled(_AGENT).finditer(text)]
    return text[: text.rfind("\n", 0, at[-1]) + 1] if at else text


def signal_name(number: int) -> str:
    """Return SIGKILL for 9, `signal 77` for what has no name."""
    import signal  # noqa: PLC0415 - only where something failed

    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


class _Reader(object):
    """Reads entries off the lines of one block."""

    def __init__(self, entries: dict[int, dict[str, Any]]) -> None:
        self.entries = entries
        self.entry = {}  # type: dict[str, Any]
        self.in_text = False
        self.first = False

    def read(self, lines: list[str]) -> None:
        for line in lines:
            if "Root Cause" in line:
                self.first = True
            elif "Failures:" in line:  # also `Other Failures:`
                self.first = False
            field = match.compiled(_FIELD).match(line)
            if match.compiled(_ENTRY).match(line) or match.compiled(_RULE).match(line):
                self.close()
            elif field and not (self.in_text and field.group(1) in ("time", "host", "msg")):
                self.field(field.group(1), field.group(2).strip())
            elif self.in_text:
                self.entry["traceback"] += "\n" + line.rstrip()
        self.close()

    def field(self, name: str, value: str) -> None:
        self.in_text = name in ("traceback", "msg")
        if name == "rank":
            self.numbers(_RANK, value, ("rank", "local_rank"))
        elif name == "exitcode":
            self.numbers(_CODE, value, ("exitcode", "pid"))
        else:
            self.entry["traceback" if name == "msg" else name] = value

    def numbers(self, pattern: str, value: str, names: tuple[str, ...]) -> None:
        found = match.compiled(pattern).search(value)
        for index, name in enumerate(names):
            number = found.group(index + 1) if found else None
            if number is not None and len(number) < 12:  # noqa: PLR2004 - no garbage of digits
                self.entry[name] = int(number)

    def close(self) -> None:
        entry, self.entry, self.in_text = self.entry, {}, False
        if "rank" not in entry or "exitcode" not in entry:
            return
        self.entries[entry["rank"]] = _complete(entry, self.first)


def _complete(entry: dict[str, Any], first: bool) -> dict[str, Any]:
    code = entry["exitcode"]
    text = str(entry.get("traceback", "")).strip()
    if text.startswith("To enable traceback see"):
        text = ""
    return dict(
        entry,
        local_rank=entry.get("local_rank", entry["rank"]),
        pid=entry.get("pid", 0),
        host=entry.get("host", ""),
        time=entry.get("time", ""),
        error_file=entry.get("error_file", ""),
        code=128 - code if code < 0 else code,
        signal=signal_name(-code) if code < 0 else "",
        traceback=_dedented(text),
        first=first,
    )


def _dedented(text: str) -> str:
    """Take back the two blanks that torchrun puts before each further line of a traceback."""
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
            # 1.9 says the root cause first; later versions last: begin at the title above both
            for above in range(index, -1, -1):
                if match.compiled(_TITLE).match(lines[above]) or "ChildFailedError" in lines[above]:
                    return above
            return max(0, index - 1)
    return None


def _agent(lines: list[str]) -> dict[int, dict[str, Any]]:
    entries = {}
    for line in lines:
        found = match.compiled(_AGENT).search(line)
        if found:
            code, rank, pid = (int(number) for number in found.groups())
            entries[rank] = _complete({"rank": rank, "exitcode": code, "pid": pid}, True)
    return entries
