"""Answers a client's requests on the machine that it runs on, over stdin and stdout (wire.py).

    python -I -S -B server.py

A verb is `service.name`: a function in the VERBS of a service's module, which gets the request and
the link, and returns the answer. The agent ends with its stdin and leaves nothing behind.
"""

# ruff: noqa: PLC0415 - traceback: after a fault of ours only

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import sys

# the package is three folders up, and nothing else is on the path
sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))

from safelaunch.runtime.agent import wire
from safelaunch.runtime.start import runtime_copy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from safelaunch.runtime.agent.wire import Message

SERVICES = {
    "start": "agent.start",
    "runs": "agent.runs",
    "events": "agent.events",
    "cards": "agent.cards",
    "network": "agent.network",
    "shared": "agent.shared_filesystem",
    "facts": "facts.probe",
    "containers": "containers.image_probe",
    "receive": "transfer.receive",
    "send": "transfer.send",
    "trees": "transfer.run_trees",
}
# of imports from files that are not what was written there
DAMAGE = (ImportError, SyntaxError, EOFError)
BAD_BYTECODE = "bad marshal data"  # begins the message of a ValueError
# New objects between two searches for garbage: with Python's own 700 they take a fifth of the time
# in which the manifest of thousands of files is read, and an agent makes little garbage.
GARBAGE = 50_000
READY = b"\0safelaunch agent\n"  # before it may be output of a shell's startup files


def serve(link: wire.Link) -> None:
    """Answer requests until the client is gone."""
    while True:
        try:
            request = link.message()
            service, _, verb = str(request.get("verb")).partition(".")
            try:
                module: Any = importlib.import_module("safelaunch.runtime." + SERVICES[service])
                link.send({"ok": module.VERBS[verb](request, link)})
            except wire.Broken:
                raise
            except Exception as e:  # noqa: BLE001 - the client raises it as its own
                link.send({"error": _error(e)})
        except wire.Broken:
            return


def _error(error: Exception) -> Message:
    kind = type(error).__name__
    if isinstance(error, OSError):
        path, message = error.filename, error.strerror or str(error)
        path = os.fsdecode(path) if isinstance(path, bytes) else path
        return {"kind": kind, "message": message, "errno": error.errno, "path": path}
    import traceback

    answer: Message = {"kind": kind, "message": str(error), "traceback": traceback.format_exc()}
    if isinstance(error, DAMAGE) or str(error).startswith(BAD_BYTECODE):
        runtime_copy.mark_damaged()  # the next command sends them again
        answer["is_damaged"] = True
    return answer


class Stdio(wire.Link):
    """Stdin, read ahead where that shows whether the client is gone, and stdout."""

    def __init__(self, write: Callable[[bytes | memoryview], object], early: bytes) -> None:
        super().__init__(self._next, write)
        self._ahead = early

    def is_closed(self) -> bool:
        """Whether stdin has ended: sshd closes it when the client is gone."""
        if self._ahead or not select.select([0], [], [], 0)[0]:
            return False
        self._ahead = os.read(0, wire.PACKET)  # the next request may have come already
        return not self._ahead

    def _into(self, memory: memoryview) -> int:
        return super()._into(memory) if self._ahead else os.readv(0, [memory])

    def _next(self, size: int) -> bytes:
        if not self._ahead:
            return os.read(0, size)
        data, self._ahead = self._ahead[:size], self._ahead[size:]
        return data


def main(early: bytes = b"") -> None:
    """Serve a client until it is gone; `early` is what was read of stdin before.

    Output of anything else goes to stderr.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    gc.set_threshold(GARBAGE)
    out = os.dup(1)
    os.dup2(2, 1)

    def write(data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(out, view) :]

    write(READY)
    try:
        serve(Stdio(write, early))
    except BrokenPipeError:
        pass


if __name__ == "__main__":
    main()
