"""A job that writes more than can be read at once: its ranks are still seen to die, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.workspace import Place

# Rank 1 is killed while rank 0 floods the log; rank 0 ends later, with a code of its own.
FLOOD = (
    "import os, sys, time\n"
    "block = b'x' * 99 + b'\\n'\n"
    "def flood(seconds):\n"
    "    end = time.monotonic() + seconds\n"
    "    while time.monotonic() < end: os.write(1, block * 10000)\n"
    "if os.environ['RANK'] == '1':\n"
    "    while not os.path.exists('flooded'): time.sleep(0.01)\n"
    "    os.kill(os.getpid(), 9)\n"
    "flood(0.7)\n"
    "open('flooded', 'w').close()\n"
    "while not os.path.exists('gone'): flood(0.1)\n"
    "flood(0.7)\n"
    "sys.exit(3)\n"
)
BOTH = "RANK=0 python3 f.py & RANK=1 python3 f.py & wait -n; touch gone; wait; exit 1"


def test_a_rank_that_dies_in_a_flood_of_another_s_output_is_the_first_that_failed(
    place: Place,
) -> None:
    place.write("f.py", FLOOD)
    run = place.start(place.shell(BOTH, log_cap="64MiB"))
    place.ended(run, limit=90)
    failure = place.json("show", run)["failure"]
    assert (failure["rank"], failure["signal"]) == (1, "SIGKILL")
