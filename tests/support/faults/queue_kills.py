"""What becomes of a run in the queue for cards when a part of it gets a signal. No pytest in it.

A client's death changes nothing. INT and TERM to the supervisor take the run out of the queue, HUP
is ignored; after KILL it is `lost`, and its place is the next one's.
"""

from __future__ import annotations

import os
import signal
import subprocess
from typing import NamedTuple

from safelaunch.runtime import processes
from safelaunch.runtime.card_claims import claims
from safelaunch.runtime.records import Process
from support.cards.pretended import PretendedCards
from support.faults.kill_matrix import LIMIT, SIGNALS, check, none_left, what_is_wrong
from support.workspace import Place, wait_for


class QueueCase(NamedTuple):
    """A signal to one part of a run that waits."""

    signal: str
    target: str

    def __str__(self) -> str:
        return f"{self.signal} to the {self.target} of a run in the queue"


CASES = tuple(QueueCase(s, t) for t in ("client", "supervisor") for s in SIGNALS)


def run_case(case: QueueCase, root: str | None = None) -> str | None:
    """Run one case in a folder of its own; return None, or what was not as expected."""

    def act(place: Place) -> None:
        cards = PretendedCards(place.root, 1)
        place.env |= cards.environ()
        cards.use(os.getpid(), 0)
        job = place.shell("true", gpus=1, queue=True)
        client = None
        if case.target == "client":
            client = place.popen("run", "--no-check", "--follow", job, stdout=subprocess.DEVNULL)
            runs = place.home / "runs"
            run = str(wait_for(lambda: runs.is_dir() and os.listdir(runs), "run")[0])
        else:
            run = place.start(job)
        wait_for(lambda: "place 1" in str(place.status(run).get("waits_for")), "run that waits")
        behind = place.start(job)
        wait_for(lambda: "place 2" in str(place.status(behind).get("waits_for")), "run behind it")
        number = getattr(signal, f"SIG{case.signal}")
        if client is not None:
            client.send_signal(number)
            client.wait(timeout=LIMIT)
        else:
            who = Process.from_json(place.status(run)["supervisor"])
            processes.send(who.pid, who.start, number)
        is_over = case.target == "supervisor" and case.signal != "HUP"
        if is_over:
            state = "lost" if case.signal == "KILL" else "stopped"
            wait_for(lambda: place.status(run)["state"] == state, f"run that is {state}", LIMIT)
        else:
            check(place.status(run)["state"], "pending", "state")
        cards.use(os.getpid())
        for other in [behind] if is_over else [run, behind]:
            check(place.ended(other, LIMIT)["state"], "succeeded", f"state of {other}")
        check(claims.live(str(cards.claims)), [], "claims that are left")
        check(place.status(run).get("attempts", []) == [], is_over, "whether it never began")
        none_left(place, run)

    return what_is_wrong(act, root)
