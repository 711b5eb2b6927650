"""Ends of a rank that launchers tell wrongly, partly or not at all; what must be said of each.

Rank 1 does it. Used by tests/integration/failure/test_direct_failures.py with ranks that are
started directly, by `scripts/bench matrix` with both ways of starting.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.runtime import processes
from support.faults.kill_matrix import START_LIMIT, check, holds, none_left, what_is_wrong
from support.workspace import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.workspace import Place

# What gloo says when a peer goes away (pytorch, gloo/transport/tcp/pair.cc).
CLOSED = "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer"
HEAD = """
import atexit, ctypes, os, sys, threading, time
def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.002)
def mark(name):
    open(name, "w").close()
rank = os.environ["RANK"]
mark("up." + rank)
wait_for("up.0")
wait_for("up.1")
"""
# the others lose their peer 20 ms after it has failed
LOSE_IT = f"wait_for('failed')\ntime.sleep(0.02)\nraise RuntimeError({CLOSED!r})\n"
FAIL = "atexit.register(mark, 'failed')\n"
BLOCK = "while True: time.sleep(60)\n"
GLOO = "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
REDUCE = GLOO + "while True: dist.all_reduce(torch.ones(1))\n"
REDUCE_SOME = GLOO + "for _ in range(3): dist.all_reduce(torch.ones(1))\n"
# the ranks of the second attempt are forked from the process that has kept the imports of the first
FIRST_FAILS = (
    "import os\nif os.environ['SAFELAUNCH_ATTEMPT'] == '1': raise ValueError('the first')\n"
)
AGAIN = {
    "preload": ["decimal"],
    "recovery": {
        "max_restarts": 1,
        "backoff": "0s",
        "classes": {"user-code-exception": "restart"},
    },
}
SOON = {"first_progress": "60s", "floor": "1s", "factor": 1, "action": "stop"}
STEPS = "for n in range(1, 4): print(f'step {n}/9 loss 0.5', flush=True); time.sleep(0.1)\n"


class Case(NamedTuple):
    """What rank 1 does, what the others do, and what has to be known of it in the end.

    `what` is in the line that says what failed, or in the warning of a run that succeeded.
    """

    name: str
    rank_1: str
    others: str = LOSE_IT
    state: str = "failed"
    rank: int | None = 1
    class_name: str | None = "user-code-exception"
    what: str = ""
    act: Callable[[Place, str], None] | None = None  # what is done to the run from outside
    more: Callable[[dict[str, Any]], None] | None = None  # a further look at what `show` has
    keys: dict[str, Any] = {}  # of the job  # noqa: RUF012 - a tuple's default, never changed
    needs_grace: bool = False  # torchrun's agent may end rank 1 before it fails: nobody could know

    def __str__(self) -> str:
        return self.name


def run_case(case: Case, root: str | None = None, *, start: str = "direct") -> str | None:
    """Run one case; return None, or what was told wrongly or left behind.

    `start`: by the launcher, direct, or "restart": direct, in an attempt that keeps its imports.
    """
    is_restart, start = start == "restart", "direct" if start == "restart" else start

    def act(place: Place) -> None:
        body = textwrap.indent(case.rank_1, "    "), textwrap.indent(case.others, "    ")
        program = f"{HEAD}if rank == '1':\n{body[0]}else:\n{body[1]}"
        keys: dict[str, Any] = {"launcher": "torchrun", "profile": "cpu", "peer_grace": "1s"}
        if is_restart:
            program, keys = FIRST_FAILS + program, {**keys, **AGAIN}
        job = place.job(program, **{**keys, **case.keys}, processes=2, start=start)
        run = place.start(job, timeout=START_LIMIT)
        if case.act is not None:
            case.act(place, run)
        place.ended(run)
        shown = place.json("show", run)
        check(shown.get("start", "launcher"), start, "start")
        check(shown["state"], case.state, "state")
        check(len(shown["attempts"]), 2 if is_restart else 1, "attempts")
        none_left(place, run)
        if case.state == "succeeded":
            holds(case.what, str(shown.get("warning")), "warning")
            return
        failure = shown["failure"]
        if failure is None:
            raise AssertionError("no failure")
        check((failure["rank"], failure["class"]), (case.rank, case.class_name), "rank and class")
        holds(case.what, failure["what"], "what")
        if case.more is not None:
            case.more(failure)

    return what_is_wrong(act, root)


def _kill_launcher(place: Place, run: str) -> None:
    wait_for((place.project / "up.1").exists, "ranks", START_LIMIT)
    who = place.status(run)["launcher"]
    processes.send(who["pid"], who["start"], 9)


def _has_frame(failure: dict[str, Any]) -> None:
    functions = [frame["function"] for frame in failure["stack"]]
    check("crash" in functions, True, f"frame of the fatal signal in {functions}")


CASES = (
    Case(
        "KeyError, the others lose the peer 20 ms later",
        FAIL + "{}['labels']\n",
        what="KeyError: 'labels'",
    ),
    Case(
        "KeyError in the middle of gloo's collectives",
        REDUCE_SOME + "{}['labels']\n",
        REDUCE,
        what="KeyError: 'labels'",
    ),
    Case(
        "segmentation fault",
        "def crash():\n    ctypes.string_at(0)\ncrash()\n",
        BLOCK,
        class_name="killed-by-signal",
        what="segmentation fault (SIGSEGV)",
        more=_has_frame,
    ),
    Case("kill -9", "os.kill(os.getpid(), 9)\n", BLOCK, class_name="killed", what="SIGKILL"),
    Case(
        "sys.exit with a text",
        FAIL + "sys.exit('no data in /data/v2')\n",
        what="no data in /data/v2",
    ),
    Case(
        "os._exit(0) while the others wait for it",
        "mark('failed')\nos._exit(0)\n",
        what="had ended with code 0 before the others were done",
    ),
    Case(
        "os._exit(0) in the middle of gloo's collectives",
        REDUCE_SOME + "os._exit(0)\n",
        REDUCE,
        what="had ended with code 0 before the others were done",
    ),
    Case(
        "an exception that the program's hook does not show",
        FAIL + "sys.excepthook = lambda *_: None\n{}['hidden']\n",
        what="KeyError: 'hidden'",
    ),
    Case(
        "an exception that nobody can see",
        FAIL + "null = os.open('/dev/null', 1)\nos.dup2(null, 1)\nos.dup2(null, 2)\n{}['silent']\n",
        what="KeyError: 'silent'",
    ),
    Case(
        "an exception in a thread",
        "thread = threading.Thread(target=lambda: {}['thread'])\nthread.start()\nthread.join()\n",
        "pass\n",
        state="succeeded",
        what="KeyError: 'thread'",
    ),
    Case(
        "a daemon that is left",
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        os.closerange(0, 256)\n        os.chdir('/')\n"
        "        os.execve('/bin/sleep', ['kworker/u8:1', '12345'], {})\n    os._exit(0)\n",
        "pass\n",
        state="succeeded",
    ),
    Case(
        "KILL of what started the ranks",
        BLOCK,
        BLOCK,
        rank=None,
        class_name="killed",
        what="was killed",
        act=_kill_launcher,
    ),
    Case(
        "a full disk",
        FAIL + "with open('/dev/full', 'w') as file: file.write('weights')\n",
        class_name="disk-full",
        what="No space left on device",
    ),
    Case(
        "an artifact that is missing",
        "pass\n",
        "pass\n",
        rank=None,
        class_name=None,
        what="out/model.bin",
        keys={"success": {"artifacts": ["out/model.bin"]}},
    ),
    Case(
        "silence of both",
        STEPS + "def load():\n    while True: time.sleep(60)\nload()\n",
        STEPS + BLOCK,
        rank=None,
        class_name="hang",
        what="no output and no step for",
        keys={"hang": SOON},
    ),
    Case(
        "KeyError 30 ms after another has lost its peer, in a line that tells of that",
        "wait_for('lost')\ntime.sleep(0.03)\n"
        "{}['labels']  # peers say: Connection closed by peer\n",
        f"atexit.register(mark, 'lost')\nraise RuntimeError({CLOSED!r})\n",
        what="KeyError: 'labels'",
        needs_grace=True,
    ),
    Case(
        "TERM from outside, which the others note as a lost peer",
        "mark('failed')\nos.kill(os.getpid(), 15)\n",
        class_name="killed-by-signal",
        what="SIGTERM",
    ),
)
