"""Going on from an earlier run: with `resume_args`, and only where it is still the same job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.workspace import wait_for

from safelaunch.runtime import processes
from safelaunch.runtime.records import Process

if TYPE_CHECKING:
    from support.workspace import Place

PRINT_ARGS = "import sys\nprint('args', *sys.argv[1:])\n"
FAIL = PRINT_ARGS + "sys.exit(0 if '--resume' in sys.argv else 1)\n"
RECOVERY = {"max_restarts": 0, "resume_args": {"resume": True}}
ARGS = {"per_device_train_batch_size": 8}


def run_json(place: Place, run: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((place.node(run) / "run.json").read_text())
    return record


@pytest.fixture
def failed(place: Place) -> str:
    """Return a run that has failed, and that a resume would finish."""
    run = place.start(place.job(FAIL, args=ARGS, recovery=RECOVERY, hang="off"))
    assert place.ended(run)["state"] == "failed"
    # what is stored beside the run must be whole before a test changes the files
    wait_for((place.node(run) / "code.json").exists, "stored code of the run")
    return run


def test_a_resume_starts_with_the_resume_args(place: Place, failed: str) -> None:
    run = place.start("job.yaml", "--resume")
    assert (place.ended(run)["state"], run != failed) == ("succeeded", True)


def test_a_resume_records_the_run_that_it_goes_on_from(place: Place, failed: str) -> None:
    run = place.start("job.yaml", "--resume-from", failed)
    assert run_json(place, run)["resumes"] == failed


def test_a_rerun_resumes_whatever_the_job_file_says_now(place: Place, failed: str) -> None:
    place.write("job.yaml", "launcher: nonsense\n")
    place.cli("rerun", "--resume", "--follow", failed)
    shown = place.json("show")
    assert (shown["state"], run_json(place, shown["id"])["resumes"]) == ("succeeded", failed)


def test_a_resume_of_another_experiment_is_refused_with_the_differences(
    place: Place, failed: str
) -> None:
    changed = {**ARGS, "per_device_train_batch_size": 16, "num_generations": 4}
    place.job(FAIL, args=changed, recovery=RECOVERY)
    stderr = place.cli("run", "--resume", "job.yaml", code=3).stderr
    assert stderr.splitlines()[:3] == [
        f"error: this job is not the one that {failed} ran (was -> is)",
        "  per_device_train_batch_size: 8 -> 16",
        "  num_generations: not given -> 4",
    ]


def test_a_refused_resume_leaves_no_run(place: Place, failed: str) -> None:
    place.job(FAIL, args={"per_device_train_batch_size": 16}, recovery=RECOVERY)
    place.cli("run", "--resume", "job.yaml", code=3)
    assert [folder.name for folder in (place.home / "runs").iterdir()] == [failed]


def test_an_argument_that_does_not_count_may_change(place: Place, failed: str) -> None:
    place.job(FAIL, args={**ARGS, "lr": "1e-4"}, recovery=RECOVERY)
    assert run_json(place, place.start("job.yaml", "--resume"))["resumes"] == failed


# the option takes a value, as that of transformers' HfArgumentParser does
TRAINER = """
import argparse, os, pathlib, signal, time
parser = argparse.ArgumentParser()
parser.add_argument("--output_dir", type=pathlib.Path)
parser.add_argument("--resume_from_checkpoint")
args = parser.parse_args()
print("resumes from", args.resume_from_checkpoint, flush=True)
record = pathlib.Path(os.environ["SAFELAUNCH_NODE_DIR"], "record.json")
while not record.exists():  # an edit during the first attempt
    time.sleep(0.01)
if os.environ["SAFELAUNCH_ATTEMPT"] == "1":
    with open(__file__, "a") as file:
        file.write("# edited\\n")
if os.environ["SAFELAUNCH_ATTEMPT"] == "2":
    for step in (20, 40):
        folder = args.output_dir / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "training_args.bin").write_bytes(b"x")
        if step == 20:
            (folder / "trainer_state.json").write_text("{}")
if not args.resume_from_checkpoint:
    os.kill(os.getpid(), signal.SIGKILL)
"""
FROM_CHECKPOINT = {
    "backoff": "0.1s",
    "checkpoint": "it's out/checkpoint-*",
    "resume_args": {"resume_from_checkpoint": "{checkpoint}"},
}


def test_a_restart_and_a_resume_get_the_newest_whole_checkpoint(place: Place) -> None:
    args = {"output_dir": "it's out"}
    job = place.job(TRAINER, args=args, recovery=FROM_CHECKPOINT, hang="off")
    run = place.start(job)
    shown = place.ended(run)
    checkpoint = str(place.project / "it's out" / "checkpoint-20")
    logs = [place.wait_for_text(run, "resumes from", attempt=n) for n in (1, 2, 3)]
    assert shown["state"] == "succeeded"
    assert "resumes from None" in logs[0]
    assert "attempt 2: the code has changed since the start: job.py" in logs[1]
    screen = " ".join(place.cli("show", run).stdout.split())
    assert "code changed since the start: job.py" in screen
    assert "starts from the beginning: no whole checkpoint" in logs[1]
    assert f"\nresumes from {checkpoint}\n" in logs[2]
    assert "(it's out/checkpoint-40 lacks trainer_state.json)" in logs[2]
    assert f"resumes from {checkpoint}" in place.cli("run", "--resume", "--follow", job).stdout


def test_a_run_that_lives_is_not_resumed(place: Place) -> None:
    job = place.job("import time\ntime.sleep(600)\n", recovery=RECOVERY)
    run = place.start(job)
    stderr = place.cli("run", "--resume", job, code=3).stderr
    assert stderr == (f"error: {run} has not ended\nhint: end it first: safelaunch stop {run}\n")


def test_a_lost_run_without_processes_is_resumed(place: Place, failed: str) -> None:
    file = place.node(failed) / "status.json"
    status = json.loads(file.read_text())
    wait_for(
        lambda: not processes.is_alive(Process.from_json(status["supervisor"])),
        "end of the supervisor",
    )
    file.write_text(json.dumps({**status, "state": "running"}))  # its supervisor is gone
    assert place.status(failed)["state"] == "lost"
    assert run_json(place, place.start("job.yaml", "--resume"))["resumes"] == failed


def test_a_resume_without_an_earlier_run_says_so(place: Place) -> None:
    job = place.job(PRINT_ARGS, recovery=RECOVERY)
    stderr = place.cli("run", "--resume", job, code=2).stderr
    assert stderr == ("error: no run of `job` to resume\nhint: start it without --resume\n")


def test_a_resume_of_a_job_that_does_not_say_how_is_refused(place: Place) -> None:
    stderr = place.cli("run", "--resume", place.job(PRINT_ARGS), code=2).stderr
    assert "does not say how it resumes" in stderr


def test_a_dry_run_shows_a_resume_without_a_look_at_the_runs(place: Place) -> None:
    job = place.job(PRINT_ARGS, recovery=RECOVERY)
    printed = place.cli("run", "--resume", "--dry-run", job).stdout
    assert printed.splitlines()[1].endswith("job.py --resume")


@pytest.mark.parametrize(
    "keys",
    [
        {"recovery": {"classes": {"nonsense": "stop"}}},
        {"progress": "step (?P<step>"},
        {"success": {"artifacts": "../../*.pt"}},
        {"max_duration": "-5m"},
        {"hang": {"floor": "-1s"}},
        {"recovery": ["restart"]},
    ],
    ids=str,
)
def test_bad_supervision_starts_nothing(keys: dict[str, Any], place: Place) -> None:
    place.cli("run", place.job(PRINT_ARGS, **keys), code=2)
    assert not place.home.exists()


def test_the_supervisor_is_told_what_it_needs(place: Place) -> None:
    run = place.start(place.job(PRINT_ARGS, pythonpath=["lib"], args=ARGS, recovery=RECOVERY))
    record = run_json(place, run)
    assert {
        key: record[key]
        for key in ("cwd", "roots", "single", "capture", "smoke", "success", "gpus", "fingerprint")
    } == {
        "cwd": str(place.project),
        "roots": [str(place.project), str(place.project / "lib")],
        "single": "main",
        "capture": True,
        "smoke": False,
        "success": None,
        "gpus": None,
        "fingerprint": {
            "name": "job",
            "nodes": "1",
            "world size": "1",
            "per_device_train_batch_size": "8",
        },
    }


def test_the_scripts_of_later_attempts_lie_in_the_run_directory(place: Place) -> None:
    run = place.start(place.job(PRINT_ARGS, recovery=RECOVERY))
    script = (place.node(run) / "again.0.sh").read_text()
    assert script.rstrip().endswith("job.py \\\n  --resume")


def test_clean_removes_the_copy_of_a_rerun_when_nothing_needs_it(place: Place, failed: str) -> None:
    place.job("print('edited')\n")
    place.cli("rerun", "--follow", failed, code=1)
    (tree,) = (place.home / "trees").iterdir()
    assert place.cli("clean").stdout == (
        f"localhost:{tree}: kept: the run has not succeeded, and may be resumed; --all removes it\n"
    )
    place.cli("rerun", "--resume", "--follow", failed)
    (dry,) = place.json("clean", "--all", "--dry-run")["trees"]
    assert (dry["host"], dry["tree"], dry["kept"], tree.exists()) == (
        "localhost", str(tree), "", True,
    )  # fmt: skip
    assert place.cli("clean", "--all").stdout.startswith(f"localhost:{tree}: removed (")
    assert not tree.exists()
    assert place.cli("clean").stderr == "no run has a copy of a project on any host\n"
    place.cli("rerun", "--resume", "--follow", failed)  # from the stored code
    assert tree.exists()
