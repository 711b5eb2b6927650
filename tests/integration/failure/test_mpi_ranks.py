"""Ranks that have their number under another name than RANK."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from support.rank_process import Rank

if TYPE_CHECKING:
    from pathlib import Path

    from support.workspace import Place

STARTER = """
import os, subprocess, sys
os.environ["SAFELAUNCH_MAIN"] = str(os.getpid())
for number in "01":
    environ = {**os.environ, "NAME": number, "SLURM_PROCID": "0"}
    subprocess.run([sys.executable, "-c", PROGRAM], env=environ)
"""
NESTED = "import subprocess, sys; subprocess.run([sys.executable, '-c', '1/0'])"


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    rank = Rank(tmp_path)
    del rank.env["RANK"]
    rank.env["SAFELAUNCH_SINGLE"] = "mpi"
    return rank


def markers(rank: Rank) -> list[str]:
    return sorted(path.name for path in (rank.node / "ranks").iterdir())


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK"])
def test_a_rank_has_the_number_that_its_starter_gave(rank: Rank, name: str) -> None:
    rank.run(STARTER.replace("NAME", name).replace("PROGRAM", "'1/0'"))
    assert markers(rank) == ["rank-0.1.0", "rank-1.1.0"]


def test_what_a_rank_starts_is_none(rank: Rank) -> None:
    program = STARTER.replace("NAME", "PMI_RANK").replace("PROGRAM", repr(NESTED))
    assert rank.run(program.replace('"01"', '"0"'))[1].count("ZeroDivisionError") == 1
    assert markers(rank) == ["rank-0.1.0"]
    assert [record["kind"] for record in rank.read("rank-0.1.0.json")] == ["exit"]


@pytest.mark.parametrize(("program", "ranks"), [("srun", ["rank-3.1.0"]), ("other", [])])
def test_a_task_of_srun_is_a_rank_though_srun_is_not_above_it(
    rank: Rank, program: str, ranks: list[str]
) -> None:
    with subprocess.Popen([program, "600"], executable="/bin/sleep") as main:
        try:
            rank.env |= {"SAFELAUNCH_MAIN": str(main.pid), "SLURM_PROCID": "3"}
            rank.run("pass")
        finally:
            main.kill()
    assert markers(rank) == ranks


STAND_IN = """#!/bin/bash
# Stands in for mpirun: `-np N PROGRAM ...`, each with its number as Open MPI names it.
count=$2 code=0
shift 2
for ((rank = 0; rank < count; rank++)); do OMPI_COMM_WORLD_RANK=$rank "$@" & ranks+=($!); done
for rank in "${ranks[@]}"; do wait "$rank" || code=$?; done
exit $code
"""
FAILS = """
import os
line = "allocation %s %s\\n" % (os.environ.get("SLURM_JOB_ID"), os.environ.get("PET_NNODES"))
os.write(1, line.encode())  # at once: the ranks share the pipe
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    raise KeyError("batch")
"""


def test_the_rank_that_fails_under_mpirun_is_named(place: Place) -> None:
    program = place.root / "bin" / "mpirun"
    program.parent.mkdir()
    program.write_text(STAND_IN, encoding="utf-8")
    program.chmod(0o755)
    place.env |= {"PATH": f"{program.parent}:{place.env['PATH']}", "SLURM_JOB_ID": "77"}
    place.env["PET_NNODES"] = "3"
    run = place.start(place.job(FAILS, launcher="mpirun", processes=2))
    assert place.ended(run)["state"] == "failed"
    failure = place.json("show", run)["failure"]
    assert (failure["rank"], failure["exception"]["type"]) == (1, "KeyError")
    assert place.cli("logs", "--rank", "1", run).stdout.count("allocation 77 None\n") == 2
