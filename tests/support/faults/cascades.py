"""Failures that cause others: four ranks, one failure, and 20 ms after it the three it caused.

Used by tests/integration/failure/test_failure_reports.py with few and by `scripts/bench matrix`
with many.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from support.faults.kill_matrix import START_LIMIT, check, holds, what_is_wrong

if TYPE_CHECKING:
    from support.workspace import Place

RANKS = 4
# The others say what gloo says when a peer goes away (pytorch, gloo/transport/tcp/pair.cc).
PROGRAM = """
import atexit, os, sys, time
rank, bad, token = os.environ["RANK"], sys.argv[1], sys.argv[2]

def read_batch():
    raise ValueError("bad batch " + token)

def all_reduce():
    raise RuntimeError(
        "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer"
        " [127.0.1.1]:%d" % (40000 + int(rank))
    )

open("up." + rank, "w").close()
while not all(os.path.exists("up.%d" % r) for r in range(4)):
    time.sleep(0.001)
if rank == bad:
    # after the traceback is written, and before the process ends: nothing fails earlier, however
    # long this rank may wait for a processor
    atexit.register(lambda: open("failed", "w").close())
    read_batch()
while not os.path.exists("failed"):
    time.sleep(0.001)
time.sleep(0.02)
all_reduce()
"""


def _diagnosed(place: Place, rank: int, token: str) -> None:
    """Check that `diagnose` names the same of the merged log alone."""
    log = place.json("show")["run_dir"] + "/logs/attempt-1/combined.log"
    first = place.json("diagnose", log, code=1)["findings"][0]
    check((first["rank"], first["class"]), (rank, "user-code-exception"), "diagnosis of the log")
    holds(f"bad batch {token}", first["line"], "line of the diagnosis")


def one_cascade(rank: int, root: str | None = None, *, by: str = "torchrun") -> str | None:
    """Let that rank fail first; return None, or what was told wrongly.

    `by` starts the ranks: torchrun, which ends the others itself; its stand-in, or a direct start,
    which do not.
    """

    def act(place: Place) -> None:
        token = secrets.token_hex(4)
        start = {"stand-in": place.ranks, "direct": place.direct}.get(by, place.job)
        count = {"launcher": by, "processes": RANKS} if by == "torchrun" else {"count": RANKS}
        job = start(PROGRAM, args=[str(rank), token], profile="cpu", **count)
        place.cli("run", "--follow", job, code=1, timeout=START_LIMIT)
        shown = place.json("show")
        check(shown.get("start"), "direct" if by == "direct" else None, "start")
        failure = shown["failure"]
        check(failure["rank"], rank, "rank")
        check(failure["what"], f"ValueError: bad batch {token}", "what")
        check(failure["frame"]["function"], "read_batch", "frame")
        holds('raise ValueError("bad batch " + token)', failure["exception"]["traceback"], "trace")
        check(len(failure["others"]), RANKS - 1, "number of the others")
        roles = {other["role"] for other in failure["others"]}
        check(roles - {"cascade", "unknown"}, set(), "roles of the others")
        _diagnosed(place, rank, token)

    return what_is_wrong(act, root)
