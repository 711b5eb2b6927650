"""The rules of lint, measured against real loaders, its own table, and this repository."""

from __future__ import annotations

import json
import os
import shutil
import sys
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from kills import ROOT, tests
from plumbum import local
from rows import SAFELAUNCH, Row, home
from timing import cost, median_ratio, pairs

from safelaunch.lint.env.names import table
from safelaunch.lint.run import check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SCALARS = 5000
START_RATIO = 2.0


def lint() -> Iterator[Row]:
    """Yield how right the verdicts are, and what a start of lint costs."""
    yield _scalars()
    retired_names = table().retired
    yield _names("dead or renamed environment names that lint finds", retired_names, caught=True)
    living = table().variables.keys() - retired_names.keys()
    yield _names("living environment names that lint leaves alone", living, caught=False)
    yield _repository()
    yield _start()


def _scalars() -> Row:
    loaders = tests("support.inputs.yaml_scalars")
    seed = int.from_bytes(os.urandom(4), "big")
    wrong = list(loaders.disagreements(loaders.generate(SCALARS, seed)))
    for line in wrong[:10]:
        print(f"seed {seed}: {line}", file=sys.stderr)
    return Row(
        "plain YAML scalars whose verdict is what PyYAML and ruamel.yaml (YAML 1.2) really read",
        f"{SCALARS - len(wrong):,}/{SCALARS:,}",
        "all",
        not wrong,
    )


def _names(what: str, names: Iterable[str], *, caught: bool) -> Row:
    listed = sorted(names)
    right = [n for n in listed if _is_caught(n) == caught]
    return Row(what, f"{len(right)}/{len(listed)}", "all", len(right) == len(listed))


def _is_caught(name: str) -> bool:
    return bool(check("run.sh", f"export {name}=$VALUE\n".encode()).findings)


def _repository() -> Row:
    lint_here = local[SAFELAUNCH]["lint", "--json", "."].with_cwd(ROOT)
    report = json.loads(lint_here(retcode=(0, 1)))  # 1: something was found
    count = len(report["findings"])
    return Row(f"findings in this repository ({report['files']} files)", str(count), "0", not count)


def _start() -> Row:
    bare = [sys.executable, "-c", "import click, yaml"]
    with home() as (folder, _):
        script = shutil.copy(os.path.join(ROOT, "scripts", "test"), os.path.join(folder, "test"))
        ours = [SAFELAUNCH, "lint", script]
        measured = pairs(21, partial(_cpu, ours), partial(_cpu, bare))
    ratio = median_ratio(measured)
    times = [median(column) * 1000 for column in zip(*measured, strict=True)]
    return Row(
        'CPU time of `lint` on one script / `python -c "import click, yaml"`, median of 21 pairs',
        f"{ratio:.2f} ({times[0]:.0f} ms / {times[1]:.0f} ms)",
        f"<= {START_RATIO}",
        ratio <= START_RATIO,
    )


def _cpu(argv: list[str]) -> float:
    return cost(argv, None).cpu
