"""Run by the job's interpreter: prints `[part, {"value": ...}]` or `[part, {"skip": why}]` lines.

A question of a check (questions.py) is a part too: `--ask=` and its words as a JSON list; `ask.0`
is the answer to the first. All parts run at the same time, in threads that are not joined at the
end: one that hangs in the kernel (a dead NFS server, a wedged driver) is reported and left behind.
Commands that still run are killed then.
"""

# ruff: noqa: PLC0415 - a quick probe needs neither module: it is forked before each start

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
    from typing import Any, Dict, Tuple

    # {part: (function, its limit in seconds)}
    Parts = Dict[str, Tuple[Callable[[], Any], float]]

LATE = "did not answer within %g s"
STDIN = "-"  # in place of the words: they come on stdin, as a JSON list
_THREADS = 64  # parts at the same time; few hang, and what those delay is reported as late


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


def _parse_words(words: list[str]) -> Parts:
    """Return the parts for the words of the command line: the folder of the job, then options."""
    cwd, options = words[0], collections.defaultdict(list)
    for word in words[1:]:
        option, _, value = word.partition("=")
        options[option].append(value)
    for limit in options["--limit"]:
        commands.LIMIT = float(limit)
    works: dict[str, Callable[[], Any]] = {}
    limits: dict[str, float] = {}
    if options["--ask"]:  # first: an interpreter that searches modules takes longer than all else
        from safelaunch.runtime.facts import questions

        python = (options["--quick"] or [sys.executable])[0]
        finder = questions.Finder(python, cwd, options["--path"])
        works.update(questions.parts(cwd, map(json.loads, options["--ask"]), finder))
    parts = host.parts(cwd)
    if options["--versions"]:
        from safelaunch.runtime.facts import interpreter

        works.update(cards=gpus.without_driver, torch=interpreter.versions)
    elif options["--peers"]:
        works.update(cards=gpus.peer_access)
    elif options["--quick"]:  # no command, and no walk of folders
        names = ["system", "cgroup", *(name for name in parts if name.startswith("disk."))]
        works.update({name: parts[name] for name in names}, cards=gpus.without_driver)
    else:
        from safelaunch.runtime.facts import interpreter

        works.update(parts, cards=gpus.cards, other_cards=gpus.others)
        works.update(interpreter.parts(cwd))
        # one command first, that shows if the driver answers; then the others at the same time
        limits["cards"] = 2 * commands.LIMIT + 2
        if options["--deep"]:
            works["deep"], limits["deep"] = interpreter.deep, interpreter.DEEP
    return {name: (work, limits.get(name, commands.LIMIT)) for name, work in works.items()}


def print_parts(parts: Parts) -> None:
    """Run the parts in parallel and print each when it has ended or timed out."""
    started = time.monotonic()
    done: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
    deadlines = {name: started + limit for name, (_, limit) in parts.items()}
    _start_threads(parts, done)
    while deadlines:
        try:
            name, answer = done.get(timeout=max(0.0, min(deadlines.values()) - time.monotonic()))
        except queue.Empty:
            name = min(deadlines, key=lambda part: deadlines[part])
            answer = {"skip": LATE % round(deadlines[name] - started, 1)}
        if deadlines.pop(name, None) is not None:
            _write(name, answer)
    _write("end", {"value": round(time.monotonic() - started, 3)})


def _start_threads(parts: Parts, done: queue.Queue[tuple[str, dict[str, Any]]]) -> None:
    """Start threads that run the parts and put the answers into the queue."""
    left = collections.deque(parts.items())

    def worker() -> None:
        while left:
            try:
                name, (work, _) = left.popleft()
            except IndexError:
                return  # another thread was faster
            done.put((name, _run_part(work)))

    for count in range(min(len(parts), _THREADS)):
        try:
            threading.Thread(target=worker, daemon=True).start()
        except RuntimeError as e:  # the limit of processes of the user, or of a container
            if count:
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
    except Exception as e:  # noqa: BLE001 - no part may stop the others
        return {"skip": f"{type(e).__name__}: {str(e)[:300]}"}


def _write(name: str, answer: dict[str, Any]) -> None:
    """Print a line."""
    try:
        line = json.dumps([name, answer])
    except (TypeError, ValueError) as e:
        line = json.dumps([name, {"skip": f"it is no JSON: {e}"}])
    data = ("\n" + line + "\n").encode("ascii", "backslashreplace")
    while data:
        data = data[os.write(1, data) :]
