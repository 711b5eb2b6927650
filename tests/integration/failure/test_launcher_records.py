"""Who is a rank, and what the real launchers make of its failure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support.rank_process import Rank
from support.workspace import DEADLINE

if TYPE_CHECKING:
    from pathlib import Path

    from support.workspace import Place


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    return Rank(tmp_path)


SINGLE = "import os, subprocess, sys\nos.environ['SAFELAUNCH_MAIN'] = str(os.getpid())\n"
CHILD = "subprocess.run([sys.executable, '-c', '1/0'])\n"
TORCHRUN = "open('torchrun', 'w').close()\nsubprocess.run([sys.executable, 'torchrun'])\n"
EXEC = "os.execv(sys.executable, [sys.executable, '-c', '1/0'])\n"


@pytest.mark.parametrize(
    ("single", "program", "record"),
    [("main", EXEC, 1), ("main", CHILD, 0), ("child", CHILD * 2, 1), ("child", EXEC, 0),
     ("child", TORCHRUN, 0)],
    ids=["its-own", "not-its-child", "first-child", "not-its-own", "not-a-launcher"],
)  # fmt: skip
def test_the_only_process_is_rank_0_without_being_told(
    rank: Rank, single: str, program: str, record: int
) -> None:
    del rank.env["RANK"]
    rank.env["SAFELAUNCH_SINGLE"] = single
    rank.run(SINGLE + program)
    records = [p.name for p in (rank.node / "records").glob("*.json")]
    assert records == ["rank-0.1.0.json"] * record
    assert len(list((rank.node / "ranks").iterdir())) == record


OF_A_SHELL = """
export SAFELAUNCH_MAIN=$$ SAFELAUNCH_SINGLE=shell
{python} -c 'open("up", "w").close(); input()' < wait & server=$!
exec 3> wait
until [ -e up ]; do sleep 0.01; done
{python} -c pass
{python} -m torch.distributed.run
{python} ray.py swift
echo > wait
wait $server
"""


@pytest.mark.parametrize("variable", [None, "0"], ids=["without RANK", "RANK for all"])
def test_each_python_of_a_shell_is_a_step_of_its_own(rank: Rank, variable: str | None) -> None:
    """But for what starts ranks itself; one that lives on does not stand in the way."""
    del rank.env["RANK"]
    if variable:
        rank.env["RANK"] = variable
    os.mkfifo(rank.root / "wait")
    (rank.root / "ray.py").touch()
    torch = rank.root / "torch" / "distributed"
    torch.mkdir(parents=True)
    for file in (torch.parent / "__init__.py", torch / "__init__.py", torch / "run.py"):
        file.touch()  # the real one takes seconds to say that words are missing
    script = OF_A_SHELL.replace("{python}", sys.executable)
    subprocess.run(
        ["bash", "-c", script], env=rank.env, cwd=rank.root, check=False, timeout=DEADLINE
    )
    created = sorted(path.name for path in (rank.node / "ranks").iterdir())
    assert created == ["rank-0.1.0", "rank-0.1.1000", "rank-0.1.2000"]


def test_torchelastics_error_file_is_written(rank: Rank) -> None:
    path = rank.root / "error.json"
    rank.env["TORCHELASTIC_ERROR_FILE"] = str(path)
    rank.run("raise ValueError('bad batch')")
    message = json.loads(path.read_text())["message"]
    assert message["message"] == "ValueError: bad batch"
    assert message["extraInfo"]["py_callstack"] == rank.failures()[0]["traceback"]
    assert int(message["extraInfo"]["timestamp"]) == rank.failures()[0]["time_ns"] // 10**9
    assert sorted(p.name for p in rank.root.iterdir()) == ["error.json", "node", "train.py"]


def test_an_error_file_of_the_users_own_stays(rank: Rank) -> None:
    path = rank.root / "error.json"
    rank.env["TORCHELASTIC_ERROR_FILE"] = str(path)
    rank.run("import os\nopen(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write('his')\n1/0")
    assert path.read_text() == "his"


def test_an_interrupt_is_no_error_of_torchelastic(rank: Rank) -> None:
    path = rank.root / "error.json"
    rank.env["TORCHELASTIC_ERROR_FILE"] = str(path)
    rank.run("raise KeyboardInterrupt")
    assert not path.exists()


# -- under the real launchers

# ranks that have met, without gloo, whose import takes each of them two seconds
MEET = (
    "open('up.' + os.environ['RANK'], 'w').close()\n"
    "while not all(os.path.exists('up.%d' % rank) for rank in (0, 1)): time.sleep(0.01)\n"
)
FAIL = (
    "def step(n):\n    raise ValueError('bad batch %d' % n)\n"
    "if os.environ['RANK'] == '1': step(17)\n"
    "time.sleep(600)\n"
)


def records(place: Place, run: str, rank: int) -> list[dict[str, Any]]:
    data = (place.node(run) / "records" / f"rank-{rank}.1.0.json").read_bytes()
    return [json.loads(line) for line in data.replace(b"\0", b"").splitlines()]


def exception(place: Place, run: str, rank: int) -> dict[str, Any]:
    return [line for line in records(place, run, rank) if line["kind"] == "exception"][-1]


@pytest.mark.train
@pytest.mark.parametrize("launcher", ["torchrun", "accelerate"])
def test_a_rank_that_fails_fails_the_run_and_the_block_has_its_traceback_without_record(
    place: Place, launcher: str
) -> None:
    program = "import os, time\n" + MEET + FAIL
    job = place.job(program, launcher=launcher, processes=2, profile="cpu")
    if launcher == "accelerate":
        place.env["ACCELERATE_ENABLE_RICH"] = "1"
    run = place.start(job)
    status = place.ended(run)
    assert (status["state"], status["exit_code"]) == ("failed", 1)
    assert "ValueError: bad batch" in (place.logs(run) / "rank-1.log").read_text()
    assert "ValueError" not in (place.logs(run) / "rank-0.log").read_text()
    record = exception(place, run, 1)
    assert (record["type"], record["message"]) == ("ValueError", "bad batch 17")
    assert record["frames"][-1]["function"] == "step"
    assert records(place, run, 0) == []  # ended by SIGTERM
    block = (place.logs(run) / "launcher.log").read_text()
    assert "To enable traceback see" not in block.split("Root Cause")[1]
    assert "ValueError: bad batch 17" in block.split("Root Cause")[1]


# rank 1 ends as if somebody had sent it a signal; the other sees its peer go
ENDED = (
    "import os, signal, torch, torch.distributed as dist\n"
    "dist.init_process_group('gloo')\n"
    "dist.barrier()\n"
    "if dist.get_rank() == 1: os.kill(os.getpid(), signal.SIGTERM)\n"
    "while True: dist.all_reduce(torch.ones(1))\n"
)


@pytest.mark.train
@pytest.mark.parametrize("start", ["launcher", "direct"])
def test_a_rank_that_somebody_ended_is_told_from_those_that_the_agent_ended(
    place: Place, start: str
) -> None:
    job = place.job(ENDED, launcher="torchrun", processes=2, profile="cpu", start=start)
    failure = place.failed(job)["failure"]
    assert (failure["rank"], failure["what"]) == (1, "ended by SIGTERM from outside the run")
    assert {other["role"] for other in failure["others"]} == {"cascade"}


WORKER = (
    "import torch\nfrom torch.utils.data import DataLoader, Dataset\n"
    "class Images(Dataset):\n"
    "    def __len__(self): return 8\n"
    "    def __getitem__(self, index):\n"
    "        if index == 5: raise IndexError('image 5 is truncated')\n"
    "        return torch.ones(1)\n"
    "for batch in DataLoader(Images(), batch_size=2, num_workers=2): pass\n"
)


@pytest.mark.train
def test_an_exception_in_a_dataloaders_worker_is_told_as_it_was_there(place: Place) -> None:
    failure = place.failed(place.job(WORKER, profile="cpu"))["failure"]
    assert failure["what"] == "IndexError: image 5 is truncated (DataLoader worker 0)"
    assert (failure["frame"]["line"], failure["frame"]["function"]) == (6, "__getitem__")


@pytest.mark.train
def test_record_of_the_user_keeps_its_own_file(rank: Rank) -> None:
    program = (
        "from torch.distributed.elastic.multiprocessing.errors import record\n"
        "@record\ndef main():\n    raise ValueError('bad batch')\nmain()\n"
    )
    path = rank.root / "error.json"
    rank.env["TORCHELASTIC_ERROR_FILE"] = str(path)
    rank.run(program)
    assert "in wrapper" in json.loads(path.read_text())["message"]["extraInfo"]["py_callstack"]
    assert rank.failures()[0]["message"] == "bad batch"


def test_a_job_of_one_process_is_recorded_too(place: Place) -> None:
    run = place.start(place.job("1/0"))
    place.ended(run)
    assert exception(place, run, 0)["type"] == "ZeroDivisionError"


def test_capture_can_be_switched_off(place: Place) -> None:
    run = place.start(place.ranks("1/0", capture=False))
    place.ended(run)
    assert list((place.node(run) / "records").iterdir()) == []
    assert len(list((place.node(run) / "ranks").iterdir())) == 2
