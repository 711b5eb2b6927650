"""Real launchers over two machines: digits to its end, and a machine that dies in the middle.

`scripts/bench matrix` tries all cases; tests/integration/remote/test_multi_node.py only adds up a
number of each rank: training takes half a minute of a core.
"""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, NamedTuple

from support import REPOSITORY
from support.faults.kill_matrix import check, holds, what_is_wrong
from support.ssh import network_namespaces
from support.ssh.network_namespaces import Lan
from support.workspace import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.workspace import Place

DIGITS = REPOSITORY / "examples" / "digits"
BOTH = ("--host", "gpu1", "--host", "gpu2")
LIMIT = 240.0  # seconds: two cores train twice beside each other


class Case(NamedTuple):
    """What is tried: a launcher, and whether the second machine dies."""

    launcher: str
    dies: bool
    start: str = "launcher"

    def __str__(self) -> str:
        how = ", ranks started directly" if self.start == "direct" else ""
        return f"{self.launcher}{how}, {'the second machine dies' if self.dies else 'to the end'}"


# torch's own ranks, without an optimizer, which would import its compiler
SUM = (
    "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
    "total = torch.ones(1)\ndist.all_reduce(total)\n"
    "print('sum', int(total), 'of', dist.get_world_size(), flush=True)\n"
    "dist.destroy_process_group()\n"
)
CASES = [
    *(Case(launcher, dies) for launcher in ("accelerate", "torchrun") for dies in (False, True)),
    *(Case("accelerate", dies, "direct") for dies in (False, True)),
]


def why_not() -> str | None:
    """Return why no two machines can be made here, if so."""
    return network_namespaces.why_not()


def run_case(case: Case, root: str | None = None) -> str | None:
    """Try it; return None, or what was wrong."""

    act = _dies if case.dies else _trains
    return _over_two_machines(act, case, root)


def meet(launcher: str, root: str, start: str = "launcher") -> str | None:
    """Let ranks on both machines add their numbers; return None, or what was wrong."""
    return _over_two_machines(_adds, Case(launcher, False, start), root)


def _over_two_machines(
    act: Callable[[Place, Lan, Case], None], case: Case, root: str | None
) -> str | None:
    def act_at(place: Place) -> None:
        with Lan(2, user="root") as net:
            place.ssh_config(net.ssh_config())
            act(place, net, case)

    return what_is_wrong(act_at, root)


def _adds(place: Place, net: Lan, case: Case) -> None:
    del net
    keys = {"launcher": case.launcher, "start": case.start}
    job = place.job(SUM, **keys, nodes=2, processes=1, profile="cpu")
    done = place.cli("remote", *BOTH, "--follow", job, timeout=LIMIT)
    holds("gpu1 | [0] sum 2 of 2", done.stdout, "log of the first")
    holds("gpu2 | [1] sum 2 of 2", done.stdout, "log of the second")
    check([node["state"] for node in place.json("show")["nodes"]], ["succeeded"] * 2, "states")


def _words(place: Place, case: Case, *more: str) -> list[str]:
    shutil.copytree(DIGITS, place.project, dirs_exist_ok=True)
    sets = [
        f"launcher={case.launcher}",
        f"start={case.start}",
        "nodes=2",
        "processes=1",
        f"python={sys.executable}",
        *more,
    ]
    sets.append("env.OMP_NUM_THREADS=1")  # both machines are this one
    options = (word for setting in sets for word in ("--set", setting))
    return ["remote", *BOTH, *options, "digits.yaml"]


def _trains(place: Place, net: Lan, case: Case) -> None:
    del net
    # its accuracy is beyond what is asked for after 8 epochs of 20
    words = _words(place, case, "args.epochs=8")
    done = place.cli(*words, "--follow", timeout=LIMIT)
    holds("gpu1 | [0] test accuracy: 0.9", done.stdout, "log of the first")
    holds("gpu2 | [1] test accuracy: 0.9", done.stdout, "log of the second")
    check([node["state"] for node in place.json("show")["nodes"]], ["succeeded"] * 2, "states")


def _dies(place: Place, net: Lan, case: Case) -> None:
    run = str(place.json(*_words(place, case, "args.epochs=1000"), timeout=LIMIT)["id"])
    began = "gpu2 | [1] epoch 2/"
    wait_for(lambda: began in place.cli("logs", run, code=None).stdout, "training", LIMIT)
    net.hosts[1].stop()  # with all that runs there
    place.cli("wait", run, code=1, timeout=LIMIT)
    shown = place.json("show", run)
    check(shown["state"], "failed", "state")
    holds("gpu2 does not answer", shown["failure"]["what"], "failure")
    check(shown["nodes"][0]["state"], "failed", "state of the first")
    wait_for(lambda: not net.hosts[0].processes(), "end of all processes on the first")
