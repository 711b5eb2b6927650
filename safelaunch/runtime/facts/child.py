"""Run by the job's interpreter: prints `[part, {"value": ...}]` or `[part, {"skip": why}]` lines.

A question of a check (questions.py) is a part too: `--ask=` and its words as a JSON list; `ask.0`
is the answer to the first. All parts run beside each other, in threads that nobody waits for at the
end: one that hangs in the kernel (a dead NFS server, a wedged driver) is said to, and left behind.
Commands that still run are killed then.
"""

from __future__ import annotations

import collections
import json
import os
import queue
import sys
import threading
import time

from safelaunch.runtime.facts import commands, gpus, host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LATE = "did not answer within %g s"
STDIN = "-"  # in place of the words: they come on stdin, as a JSON list
_AT_ONCE = 64  # parts; those that hang are few, and what they keep waiting is said to be late


def main(words: list[str]) -> None:
    """Print all parts, and exit at once, even if some parts still hang."""
    if words == [STDIN]:
        with open(0, "rb", closefd=False) as file:
            words = json.loads(file.read().decode())
    try:
        print_parts(_parse_words(words))
    finally:
        commands.end_commands()
    os._exit(0)  # threads that hang in the kernel would block a normal exit


def _parse_words(words: list[str]) -> dict[str, tuple[Callable[[], Any], float]]:
    """Return {part: (function, its limit in seconds)} for the words of the command line."""
    cwd, asks, pythonpath, python, is_quick = words[0], [], [], sys.executable, False
    for word in words[1:]:
        if word.startswith("--limit="):
            commands.LIMIT = float(word[8:])
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
            parts[name] = (work, commands.LIMIT)
    parts.update(_quick(cwd) if is_quick else _all(cwd, "--deep" in words))
    return parts


def _quick(cwd: str) -> dict[str, tuple[Callable[[], Any], float]]:
    """Return the parts that need no command and no walk of folders."""
    parts = host.parts(cwd)
    names = ["system", "cgroup", *(name for name in parts if name.startswith("disk."))]
    found = {name: (parts[name], commands.LIMIT) for name in names}
    found["cards"] = (gpus.without_driver, commands.LIMIT)
    return found


def _all(cwd: str, deep: bool) -> dict[str, tuple[Callable[[], Any], float]]:
    from safelaunch.runtime.facts import interpreter  # noqa: PLC0415

    parts: dict[str, tuple[Callable[[], Any], float]] = {}
    for name, work in host.parts(cwd).items():
        parts[name] = (work, commands.LIMIT)
    # one command first, that shows if the driver answers; then the others beside each other
    parts["cards"] = (gpus.cards, 2 * commands.LIMIT + 2)
    parts["other_cards"] = (gpus.others, commands.LIMIT)
    for name, work in interpreter.parts(cwd).items():
        parts[name] = (work, commands.LIMIT)
    if deep:
        parts["deep"] = (interpreter.deep, interpreter.DEEP)
    return parts


def print_parts(parts: dict[str, tuple[Callable[[], Any], float]]) -> None:
    """Run the parts in parallel and print each when it has ended or timed out."""
    started = time.monotonic()
    done: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
    waiting = {name: started + limit for name, (_, limit) in parts.items()}
    _start_threads(parts, done)
    while waiting:
        try:
            name, answer = done.get(timeout=max(0.0, min(waiting.values()) - time.monotonic()))
        except queue.Empty:
            name = min(waiting, key=lambda one: waiting[one])
            answer = {"skip": LATE % round(waiting[name] - started, 1)}
        if waiting.pop(name, None) is not None:
            write(name, answer)
    write("end", {"value": round(time.monotonic() - started, 3)})


def _start_threads(
    parts: dict[str, tuple[Callable[[], Any], float]],
    done: queue.Queue[tuple[str, dict[str, Any]]],
) -> None:
    """Start threads that run the parts and put the answers into the queue."""
    left = collections.deque(parts.items())

    def worker() -> None:
        while left:
            try:
                name, (work, _) = left.popleft()
            except IndexError:
                return  # another thread was faster
            done.put((name, _run_part(work)))

    for at in range(min(len(parts), _AT_ONCE)):
        try:
            threading.Thread(target=worker, daemon=True).start()
        except RuntimeError as e:  # the limit of processes of the user, or of a container
            if at:
                return  # fewer threads are enough
            for name in parts:
                done.put((name, {"skip": str(e)}))
            left.clear()
            return


def _run_part(work: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"value": work()}
    except commands.Skip as e:
        return {"skip": str(e)}
    except Exception as e:  # noqa: BLE001 - no part may take others with it
        return {"skip": f"{type(e).__name__}: {str(e)[:300]}"}


def write(name: str, answer: dict[str, Any]) -> None:
    """Print a line."""
    try:
        line = json.dumps([name, answer])
    except (TypeError, ValueError) as e:
        line = json.dumps([name, {"skip": f"it cannot be told: {e}"}])
    data = ("\n" + line + "\n").encode("ascii", "backslashreplace")
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    main(sys.argv[1:])
