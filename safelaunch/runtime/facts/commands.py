"""Runs the commands of a probe within their limits, and reads small files of the system."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


LIMIT = 10.0  # seconds for a part, and for a command; `--limit=` sets another


MOST = 1 << 21  # bytes of a command's output: `-q -x` of 16 cards has 400,000


class Skip(Exception):  # noqa: N818 - reads as what happened
    """A part has no answer; str is the reason."""


_commands: set[subprocess.Popen[bytes]] = set()  # running commands


def end_commands() -> None:
    """Kill the commands that still run."""
    for child in list(_commands):
        kill(child)


def run(words: list[str], limit: float | None = None, *, cwd: str | None = "/") -> dict[str, Any]:
    """Return `exit` and `text` of a command, `why` if it did not end.

    It is killed at its limit; if it stays (D state), it is left alone, and not waited for.
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
        return {"exit": None, "text": "", "why": getattr(e, "strerror", None) or str(e)}
    _commands.add(child)
    data, is_whole = _read(child, started + limit)
    if child.stdout is not None:
        child.stdout.close()
    result: dict[str, Any] = {"exit": None}
    if is_whole:
        result["exit"] = _wait(child, max(0.2, started + limit - time.monotonic()))
    if result["exit"] is None:
        result["why"] = _give_up(child, limit, is_endless=len(data) >= MOST)
    _commands.discard(child)
    result["text"] = data[: 4096 if len(data) >= MOST else None].decode("utf-8", "replace")
    result["seconds"] = round(time.monotonic() - started, 3)
    return result


def _read(child: subprocess.Popen[bytes], until: float) -> tuple[bytearray, bool]:
    if child.stdout is None:
        return bytearray(), True
    fd, output = child.stdout.fileno(), bytearray()
    while time.monotonic() < until and len(output) < MOST:
        if select.select([fd], [], [], max(0.0, until - time.monotonic()))[0]:
            piece = os.read(fd, 1 << 16)
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
    letter = ""
    try:
        with open(f"/proc/{child.pid}/stat", encoding="utf-8", errors="replace") as file:
            letter = file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        pass
    kill(child)
    if _wait(child, 0.5) is None:
        child.returncode = -9  # it cannot be killed: do not wait for it
    if is_endless:
        return f"it printed more than {MOST >> 20} MiB"
    where = ", it hangs in the kernel (state D)" if letter == "D" else ""
    return f"it did not end within {limit:g} s{where}"


def kill(child: Any) -> None:
    """Kill a child that is not reaped, and its process group."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        child.kill()


def read(path: str, most: int = 1 << 20) -> str:
    """Return the first bytes of a file as text, "" where it cannot be read.

    What is no regular file has none: a pipe would wait for ever.
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
