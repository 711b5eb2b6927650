"""What checks cost, here, on hosts and before a start; and which broken set-ups they find."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from kills import tests
from rows import SAFELAUNCH, Row, home
from timing import cost, median_difference, median_ratio, pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CPU = 1.0  # seconds
ADDED = 0.1  # seconds
FOUR = 1.5
_SHARE = 0.925  # 62 of 67
_PAIRS, _FEW = 15, 5
_SETTLED = 0.5  # seconds
_JOB = """launcher: python
script: train.py
profile: cpu
python: {python}
args: {{output_dir: out, lr: 1e-3, steps: 10}}
"""
# imports and options as a training script has them; it ends before they cost anything
_SCRIPT = """import os
os._exit(0)
import argparse
import json
import torch
import accelerate
from own import work
parser = argparse.ArgumentParser()
parser.add_argument("--output_dir")
parser.add_argument("--lr", type=float)
parser.add_argument("--steps", type=int)
work(parser.parse_args())
"""
_OWN = "import os\ndef work(args):\n    print(args, os.getpid())\n"


def check() -> Iterator[Row]:
    """Yield the CPU time of a check, how long four hosts take, and what a start waits for."""
    with home() as (folder, env):
        project = os.path.join(folder, "project")
        os.makedirs(project)
        job = _JOB.format(python=sys.executable)
        for name, text in (("train.py", _SCRIPT), ("own.py", _OWN), ("job.yaml", job)):
            with open(os.path.join(project, name), "w", encoding="utf-8") as file:
                file.write(text)
        path = os.path.join(project, "job.yaml")
        taken = median(cost([SAFELAUNCH, "check", path], env).cpu for _ in range(_FEW))
        yield Row(
            "CPU time of `check` of a local job, torch in its interpreter",
            f"{taken:.2f} s",
            f"<= {CPU} s",
            taken <= CPU,
        )
        yield _added(path, env)
        yield _four(folder, env)
    yield from _broken_setups()


def _broken_setups() -> Iterator[Row]:
    """Yield how many set-ups with a fault `check` finds, misses, or calls ok, by family."""
    machine = tests("support.setups.machine")
    setups = (*tests("support.setups.reported").REPORTED, *tests("support.setups.others").OTHERS)
    families: dict[str, Counter[str]] = {}
    for setup in setups:
        with tempfile.TemporaryDirectory(prefix="safelaunch-bench-") as folder:
            verdict = machine.outcome(setup, Path(folder) / "project").verdict
        families.setdefault(setup.family, Counter())[verdict] += 1
        if verdict != machine.HIT:
            print(f"{verdict}: {setup.id}", file=sys.stderr)
    whole = sum(families.values(), Counter[str]())
    for name, counts in sorted({**families, "all": whole}.items()):
        kinds = (machine.HIT, machine.MISS, machine.FALSE_OK)
        measured = ", ".join(f"{kind} {counts[kind]}" for kind in kinds)
        is_enough = counts[machine.HIT] >= _SHARE * counts.total() or name != "all"
        yield Row(
            f"set-ups that are broken on purpose, family {name}",
            measured,
            f">= {_SHARE:.0%} found, none wrongly ok" if name == "all" else "none wrongly ok",
            is_enough and not counts[machine.FALSE_OK],
        )


def _wall(argv: list[str], env: Mapping[str, str]) -> float:
    return cost(argv, env).wall


def _added(path: str, env: Mapping[str, str]) -> Row:
    """Return what the quick checks add to a start."""

    def start(*words: str) -> float:
        taken = _wall([SAFELAUNCH, "run", *words, path], env)
        cost([SAFELAUNCH, "wait"], env)
        time.sleep(_SETTLED)  # what a run writes down at its end is no part of the next start
        return taken

    measured = pairs(_PAIRS, start, partial(start, "--no-check"))
    added = median_difference(measured)
    ours, bare = (median(column) for column in zip(*measured, strict=True))
    return Row(
        f"wall time of `run` - `run --no-check`, median of {_PAIRS} pairs",
        f"{added:+.2f} s ({ours:.2f} s - {bare:.2f} s)",
        f"<= {ADDED:+} s",
        added <= ADDED,
    )


def _four(folder: str, env: Mapping[str, str]) -> Row:
    """Return how much longer four hosts take than one; here they are four names of one machine."""
    sshd = tests("support.ssh.sshd")
    what = f"wall time of `check` of four hosts / of one, median of {_FEW} pairs"
    why = sshd.missing()
    if why:
        return Row(what, f"not measured: {why}", f"<= {FOUR}", False)
    with sshd.Sshd() as server:
        os.makedirs(os.path.join(folder, ".ssh"), 0o700)
        with open(os.path.join(folder, ".ssh", "config"), "w", encoding="utf-8") as file:
            file.write("\n".join(server.ssh_config(f"gpu{at}") for at in range(1, 5)))
        env = {**env, "HOME": folder}
        single = [SAFELAUNCH, "check", "--host", "gpu1"]
        several = [SAFELAUNCH, "check", *(w for at in range(1, 5) for w in ("--host", f"gpu{at}"))]
        time.sleep(0.1)  # a new file's hash may be kept then
        measured = pairs(_FEW, partial(_wall, several, env), partial(_wall, single, env))
    ratio = median_ratio(measured)
    ours, bare = (median(column) for column in zip(*measured, strict=True))
    return Row(what, f"{ratio:.2f} ({ours:.2f} s / {bare:.2f} s)", f"<= {FOUR}", ratio <= FOUR)
