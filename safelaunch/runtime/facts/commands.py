"""Runs the commands of a probe within their limits, and reads small files of the system."""

# ruff: noqa: PLC0415 - pwd: Python may be built without it

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

LIMIT = 10.0  # seconds for a part, and for a command; `--limit=` sets another
MOST = 1 << 21  # bytes of a command's output: `-q -x` of 16 GPUs has 400,000


class Skip(Exception):  # noqa: N818 - reads as what happened
    """A part has no answer; str is the reason."""


class CommandOutput:
    """How a command ended, and what it printed; `why` says why it did not start or end."""

    def __init__(self, why: str | None = None) -> None:
        self.exit: int | None = None
        self.text = ""
        self.why = why
        self.seconds = 0.0


_commands: set[subprocess.Popen[bytes]] = set()  # running commands


def end_commands() -> None:
    """Kill the commands that still run."""
    for child in list(_commands):
        kill(child)


def run(words: list[str], limit: float | None = None, *, cwd: str | None = "/") -> CommandOutput:
    """Run a command; it is killed at its limit.

    If it stays (D state), it is left alone, and not waited for.
    """
    started = time.monotonic()
    limit = LIMIT if limit is None else limit
    try:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=cwd,
            env=dict(os.environ, LC_ALL="C"),
        )
    except (OSError, ValueError) as e:
        return CommandOutput(getattr(e, "strerror", None) or str(e))
    _commands.add(child)
    data, is_whole = _read(child, started + limit)
    output = CommandOutput()
    if is_whole:
        output.exit = _wait(child, max(0.2, started + limit - time.monotonic()))
    if output.exit is None:
        output.why = _give_up(child, limit, is_endless=len(data) >= MOST)
    _commands.discard(child)
    output.text = data[: 4096 if len(data) >= MOST else None].decode("utf-8", "replace")
    output.seconds = round(time.monotonic() - started, 3)
    return output


def _read(child: subprocess.Popen[bytes], until: float) -> tuple[bytearray, bool]:
    """Return the output of a command, and whether that is all of it."""
    output = bytearray()
    assert child.stdout is not None  # noqa: S101 - it is a pipe
    with child.stdout as stdout:
        while time.monotonic() < until and len(output) < MOST:
            if select.select([stdout], [], [], max(0.0, until - time.monotonic()))[0]:
                piece = os.read(stdout.fileno(), 1 << 16)
                if not piece:
                    return output, True
                output += piece
    return output, False


def _wait(child: subprocess.Popen[bytes], patience: float) -> int | None:
    try:
        return child.wait(patience)
    except subprocess.TimeoutExpired:
        return None


def _give_up(child: subprocess.Popen[bytes], limit: float, *, is_endless: bool) -> str:
    """Kill a command, and return why it did not end."""
    state = read(f"/proc/{child.pid}/stat").rpartition(")")[2].split()[:1]
    kill(child)
    if _wait(child, 0.5) is None:
        child.returncode = -9  # it cannot be killed: do not wait for it
    if is_endless:
        return f"it printed more than {MOST >> 20} MiB"
    where = ", it hangs in the kernel (state D)" if state == ["D"] else ""
    return f"it did not end within {limit:g} s{where}"


def kill(child: Any) -> None:
    """Kill a child that is not reaped, and its process group."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        child.kill()


def in_threads(work: Callable[..., None], items: Mapping[str, object], patience: float) -> None:
    """Call a function with each name and value at the same time; none is waited for longer."""
    threads = [threading.Thread(target=work, args=item, daemon=True) for item in items.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience)


def read(path: str, most: int = 1 << 20) -> str:
    """Return the first bytes of a file as text, "" where it cannot be read.

    Only regular files are read: a pipe would wait forever.
    """
    try:
        if not os.path.isfile(path):
            return ""
        with open(path, "rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def folders(path: str) -> list[str]:
    """Return the names in a folder, sorted; none where it cannot be read."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def user_name(uid: int) -> str:
    """Return the name of a user, or the number as text."""
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return str(uid)
