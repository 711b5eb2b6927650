"""What becomes of runs that are killed, and of connections that are cut.

The kill matrix, cascades, supervisors killed at random moments, cuts at each step of remote work.
"""

from __future__ import annotations

import importlib
import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from rows import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CASCADES = 50
KILLS = 20
# Cases that run beside each other, on two cores: where ranks or a network are waited for, more.
AT_A_TIME = 2
KILLS_AT_A_TIME = 3
CUTS_AT_A_TIME = 4


def tests(name: str) -> Any:
    """Return a module of the test suite."""
    folder = os.path.join(ROOT, "tests")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)


def matrix() -> Iterator[Row]:
    """Yield how many runs ended as they should, though a part of them was killed or failed."""
    tests("support.signals").restore_interrupts()
    yield from _signals()
    cascade = tests("support.faults.cascades")
    ends = tests("support.faults.rank_failures")
    moments = tests("support.faults.supervisor_kills")
    direct_cascade = partial(cascade.one_cascade, by="direct")
    ranks = [random.randrange(cascade.RANKS) for _ in range(CASCADES)]  # noqa: S311 - no secret
    yield case_row(
        "cascades under torchrun: rank and traceback of the first of four failures named, the "
        "others 20 ms later",
        [(f"cascade from rank {rank}", cascade.one_cascade, rank) for rank in ranks],
    )
    yield case_row(
        "cascades of ranks that are started directly",
        [(f"cascade from rank {r}, started directly", direct_cascade, r) for r in ranks],
    )
    ways = {
        "launcher": "under torchrun",
        "direct": "started directly",
        "restart": "started directly, in a restart that keeps its imports",
    }
    for start, name in ways.items():
        cases = [case for case in ends.CASES if start != "launcher" or not case.needs_grace]
        yield case_row(
            f"ends of a rank that launchers tell wrongly or not at all, {name}: rank, class, cause",
            [(f"{case}, {name}", partial(ends.run_case, start=start), case) for case in cases],
        )
    # one random moment in each of twenty equal parts: all of a run's life is met
    at = [moments.SPAN * (n + random.random()) / KILLS for n in range(KILLS)]  # noqa: S311
    yield case_row(
        "supervisors killed at random moments of a run with two attempts: shown, stopped, cleaned",
        [(f"supervisor killed after {moment:.3f} s", moments.kill_at, moment) for moment in at],
    )
    direct_kill = partial(moments.kill_at, by="direct")
    yield case_row(
        "supervisors of ranks that are started directly, killed at random moments",
        [(f"supervisor killed after {moment:.3f} s, direct", direct_kill, moment) for moment in at],
    )
    yield _two_machines()
    yield from _cuts()


def _signals() -> Iterator[Row]:
    """Yield what becomes of runs of each kind when one of their parts gets a signal."""
    kills = tests("support.faults.kill_matrix")
    warm = tests("support.faults.warm_kills")
    queue = tests("support.faults.queue_kills")
    members = tests("support.faults.member_kills")
    rows = (
        (
            (
                "kill matrix: INT, TERM, HUP, KILL to client, tmux, supervisor, launcher, rank "
                "under accelerate and torchrun, the stated end within 20 s"
            ),
            kills.run_case,
            kills.CASES,
        ),
        (
            "kill matrix of ranks that are started directly: the same signals, the stated end",
            kills.run_case,
            kills.DIRECT,
        ),
        (
            (
                "kill matrix of runs that keep their imports for a restart: the same signals to "
                "the process that keeps them, supervisor, starter, rank"
            ),
            warm.run_case,
            warm.CASES,
        ),
        (
            "kill matrix of runs in the queue for cards: the same signals to client and supervisor",
            queue.run_case,
            queue.CASES,
        ),
        (
            (
                "kill matrix of services, parts and steps: the same signals to client, "
                "supervisors, coordinator and programs; nothing left, nothing run twice"
            ),
            members.run_case,
            members.CASES,
        ),
    )
    for what, run_case, cases in rows:
        named = [(str(case), run_case, case) for case in cases]
        yield case_row(what, named, KILLS_AT_A_TIME)


def _cuts() -> Iterator[Row]:
    """Yield what becomes of remote work when its connection is cut."""
    cuts = tests("support.faults.connection_cuts")
    why = cuts.sshd.missing()
    if why:
        yield Row("connections cut at each step of remote work", why, "all", None)
        return
    yield case_row(
        f"cuts: the connection cut at five moments each of {', '.join(cuts.STEPS)}: nothing lost, "
        "nothing started twice, no wrong state",
        [(str(case), cuts.run_case, case) for case in cuts.CASES],
        CUTS_AT_A_TIME,
    )
    yield case_row(
        "cuts while the agent's files are put on a new host",
        [(str(case), cuts.run_case, case) for case in cuts.AGENT],
    )


def _two_machines() -> Row:
    what = (
        "digits over two network namespaces, by accelerate and torchrun: trained; and, one machine "
        "killed, the other ends and its host is named"
    )
    pairs = tests("support.faults.two_machines")
    why = pairs.why_not()
    if why:
        return Row(what, why, "all", None)
    # one after the other: four ranks of torch on two cores
    return case_row(what, [(str(case), pairs.run_case, case) for case in pairs.CASES], at_a_time=1)


def case_row(
    what: str,
    cases: Sequence[tuple[str, Callable[[Any], str | None], Any]],
    at_a_time: int = AT_A_TIME,
) -> Row:
    """Return the row of cases, each tried by its function: it returns what is wrong, else None."""
    with ThreadPoolExecutor(at_a_time) as pool:
        wrong = list(pool.map(lambda case: case[1](case[2]), cases))
    for (name, _, _), problem in zip(cases, wrong, strict=True):
        if problem is not None:
            print(f"{name}: {problem}", file=sys.stderr)
    good = wrong.count(None)
    return Row(what, f"{good}/{len(cases)}", "all", good == len(cases))
