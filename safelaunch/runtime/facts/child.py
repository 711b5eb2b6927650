"""Run by the job's interpreter: prints `[part, {"value": ...}]` or `[part, {"skip": why}]` lines.

A question of a check (factsasks.py) is a part too: `--ask=` and its words as a JSON list; `ask.0`
is the answer to the first. All parts run beside each other, in threads that nobody waits for at the
end: one that hangs in the kernel (a dead NFS server, a wedged driver) is said to, and left behind.
Commands that still run are killed then.
"""

from __future__ import annotations

import collections
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LIMIT = 10.0  # seconds for a part, and for a command; `--limit=` sets another
MOST = 1 << 21  # bytes of a command's output: `-q -x` of 16 cards has 400,000
LATE = "did not answer within %g s"
STDIN = "-"  # in place of the words: they come on stdin, as a JSON list
_AT_ONCE = 64  # parts; those that hang are few, and what they keep waiting is said to be late


class Skip(Exception):  # noqa: N818 - reads as what happened
    """Why a part is left out."""


def main(words: list[str]) -> None:
    """Print all parts, and end at once, whatever still hangs."""
    if words == [STDIN]:
        with open(0, "rb", closefd=False) as file:
            words = json.loads(file.read().decode())
    try:
        tell(_wanted(words))
    finally:
        end_commands()
    os._exit(0)  # threads in the kernel would hold up the interpreter's own end


def _wanted(words: list[str]) -> dict[str, tuple[Callable[[], Any], float]]:
    """Return what is to be told: {part: (what finds it, its limit in seconds)}."""
    global LIMIT  # noqa: PLW0603 - once, before any part begins
    cwd, asks, pythonpath, python, is_quick = words[0], [], [], sys.executable, False
    for word in words[1:]:
        if word.startswith("--limit="):
            LIMIT = float(word[8:])
        elif word.startswith("--ask="):
            asks.append(json.loads(word[6:]))
        elif word.startswith("--path="):
            pythonpath.append(word[7:])
        elif word.startswith("--quick="):
            python, is_quick = word[8:], True
    parts: dict[str, tuple[Callable[[], Any], float]] = {}
    if asks:  # first: an interpreter that is asked for modules takes longer than all else
        from safelaunch.runtime.facts import questions  # noqa: PLC0415 - a cycle

        finder = questions.Finder(python, cwd, pythonpath)
        for name, work in questions.parts(cwd, asks, finder).items():
            parts[name] = (work, LIMIT)
    parts.update(_quick(cwd) if is_quick else _all(cwd, "--deep" in words))
    return parts


def _quick(cwd: str) -> dict[str, tuple[Callable[[], Any], float]]:
    """Return the parts that take no command and no walk."""
    from safelaunch.runtime.facts import gpus, host  # noqa: PLC0415 - a cycle

    parts = host.parts(cwd)
    names = ["system", "cgroup", *(name for name in parts if name.startswith("disk."))]
    found = {name: (parts[name], LIMIT) for name in names}
    found["cards"] = (gpus.seen, LIMIT)
    return found


def _all(cwd: str, deep: bool) -> dict[str, tuple[Callable[[], Any], float]]:
    from safelaunch.runtime.facts import gpus, host, interpreter  # noqa: PLC0415 - a cycle

    parts: dict[str, tuple[Callable[[], Any], float]] = {}
    for name, work in host.parts(cwd).items():
        parts[name] = (work, LIMIT)
    # one command first, that shows if the driver answers; then the others beside each other
    parts["cards"] = (gpus.cards, 2 * LIMIT + 2)
    parts["other_cards"] = (gpus.others, LIMIT)
    for name, work in interpreter.parts(cwd).items():
        parts[name] = (work, LIMIT)
    if deep:
        parts["deep"] = (interpreter.deep, interpreter.DEEP)
    return parts


def tell(parts: dict[str, tuple[Callable[[], Any], float]]) -> None:
    """Run parts beside each other and print each as it is done, or given up."""
    begun = time.monotonic()
    done: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
    waiting = {name: begun + limit for name, (_, limit) in parts.items()}
    _begin(parts, done)
    while waiting:
        try:
            name, told = done.get(timeout=max(0.0, min(waiting.values()) - time.monotonic()))
        except queue.Empty:
            name = min(waiting, key=lambda one: waiting[one])
            told = {"skip": LATE % round(waiting[name] - begun, 1)}
        if waiting.pop(name, None) is not None:
            write(name, told)
    write("end", {"value": round(time.monotonic() - begun, 3)})


def _begin(
    parts: dict[str, tuple[Callable[[], Any], float]],
    done: queue.Queue[tuple[str, dict[str, Any]]],
) -> None:
    """Begin to find out the parts; what each tells comes out of the queue."""
    left = collections.deque(parts.items())

    def take() -> None:
        while left:
            try:
                name, (work, _) = left.popleft()
            except IndexError:
                return  # another thread was faster
            done.put((name, _told(work)))

    for at in range(min(len(parts), _AT_ONCE)):
        try:
            threading.Thread(target=take, daemon=True).start()
        except RuntimeError as e:  # the limit of processes of the user, or of a container
            if at:
                return  # fewer do as well
            for name in parts:
                done.put((name, {"skip": str(e)}))
            left.clear()
            return


def _told(work: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"value": work()}
    except Skip as e:
        return {"skip": str(e)}
    except Exception as e:  # noqa: BLE001 - no part may take others with it
        return {"skip": "%s: %s" % (type(e).__name__, str(e)[:300])}


def write(name: str, told: dict[str, Any]) -> None:
    """Print a line."""
    try:
        line = json.dumps([name, told])
    except (TypeError, ValueError) as e:
        line = json.dumps([name, {"skip": "it cannot be told: %s" % e}])
    data = ("\n" + line + "\n").encode("ascii", "backslashreplace")
    while data:
        data = data[os.write(1, data) :]


_commands: set[subprocess.Popen[bytes]] = set()  # that run


def end_commands() -> None:
    """Kill the commands that are still waited for: nobody will."""
    for child in list(_commands):
        kill(child)


def run(words: list[str], limit: float | None = None, *, cwd: str | None = "/") -> dict[str, Any]:
    """Return `exit` and `text` of a command, `why` where it did not come to an end.

    It is killed at its limit; if it stays (D state), it is left alone: nothing waits for it.
    """
    begun = time.monotonic()
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
    data, is_whole = _read(child, begun + limit)
    if child.stdout is not None:
        child.stdout.close()
    told: dict[str, Any] = {"exit": None}
    if is_whole:
        told["exit"] = _wait(child, max(0.2, begun + limit - time.monotonic()))
    if told["exit"] is None:
        told["why"] = _give_up(child, limit, is_endless=len(data) >= MOST)
    _commands.discard(child)
    told["text"] = data[: 4096 if len(data) >= MOST else None].decode("utf-8", "replace")
    told["seconds"] = round(time.monotonic() - begun, 3)
    return told


def _read(child: subprocess.Popen[bytes], until: float) -> tuple[bytearray, bool]:
    if child.stdout is None:
        return bytearray(), True
    fd, found = child.stdout.fileno(), bytearray()
    while time.monotonic() < until and len(found) < MOST:
        if select.select([fd], [], [], max(0.0, until - time.monotonic()))[0]:
            piece = os.read(fd, 1 << 16)
            if not piece:
                return found, True
            found += piece
    return found, False


def _wait(child: subprocess.Popen[bytes], patience: float) -> int | None:
    try:
        return child.wait(patience)
    except subprocess.TimeoutExpired:
        return None


def _give_up(child: subprocess.Popen[bytes], limit: float, *, is_endless: bool) -> str:
    letter = ""
    try:
        with open("/proc/%d/stat" % child.pid, encoding="utf-8", errors="replace") as file:
            letter = file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        pass
    kill(child)
    if _wait(child, 0.5) is None:
        child.returncode = -9  # it cannot be killed, and nobody waits for it
    if is_endless:
        return "it printed more than %d MiB" % (MOST >> 20)
    where = ", it hangs in the kernel (state D)" if letter == "D" else ""
    return "it did not end within %g s%s" % (limit, where)


def kill(child: Any) -> None:
    """Kill a child that nobody has waited for, and what it started: it leads a group of its own."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        child.kill()


def read(path: str, most: int = 1 << 20) -> str:
    """Return the beginning of a file, an empty text where it cannot be read.

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


if __name__ == "__main__":
    main(sys.argv[1:])
