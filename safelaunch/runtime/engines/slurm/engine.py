"""What Slurm is to a run: the answers of `table.Engine`."""

from __future__ import annotations

import os
import shutil
import time

from safelaunch.runtime import commands
from safelaunch.runtime.engines.errors import MissingProgram, SubmitError
from safelaunch.runtime.engines.slurm import allocation as step
from safelaunch.runtime.engines.slurm import arrays, batch_log, dependencies, jobs, query
from safelaunch.runtime.engines.slurm import meaning as slurm
from safelaunch.runtime.engines.slurm import submit as sbatch
from safelaunch.runtime.engines.slurm import trial as sbatch_trial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from safelaunch.runtime.engines.allocation import Allocation
    from safelaunch.runtime.engines.meaning import Meaning
    from safelaunch.runtime.engines.slurm.jobs import SlurmJob
    from safelaunch.runtime.records import EngineJob, Status

TITLE = "Slurm"
LOG = batch_log.NAME
# seconds until Slurm's word of an end is written down: a shared file system may show what a
# supervisor has recorded up to a minute late (nfs(5), acregmax)
SETTLING = 90.0
CANCEL_PATIENCE = 90.0  # seconds for Slurm to end what is left; KillWait is 30 by default
POLL = 0.5
LIMIT = 30.0  # seconds for a command


def check(request: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Raise MissingProgram where the first of the words that submit is not on PATH."""
    program = request["submit"][0]
    if shutil.which(program, path=environ.get("PATH")) is None:
        raise MissingProgram(f"no `{program}` on PATH")
    problem = arrays.problem(request["script"][1], request.get("prefix") or (), environ)
    if problem:
        raise SubmitError(problem)


def names(
    request: Mapping[str, Any], environ: Mapping[str, str], *, with_limits: bool
) -> list[str]:
    """Return the names of all partitions, or what they have."""
    return sbatch.partitions(request.get("prefix") or (), environ, with_limits=with_limits)


def submit(
    request: Mapping[str, Any], environ: Mapping[str, str], on_start: Callable[[int], object]
) -> tuple[str, str]:
    """Run the line that submits; return the job's id, and its cluster. Raises SubmitError."""
    argv = dependencies.fill(
        request["submit"], os.path.dirname(os.path.dirname(request["script"][0]))
    )
    return sbatch.submit(argv, _without_options(environ), on_start=on_start)


def _without_options(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which nothing beats what the script asks for.

    sbatch takes its options from SBATCH_* and, inside of another job, from SLURM_* too.
    """
    own = ("SBATCH_", "SLURM_")
    return {k: v for k, v in environ.items() if k == "SLURM_CONF" or not k.startswith(own)}


def trial(request: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what Slurm says to a script that is not submitted."""
    return sbatch_trial.ask(
        request["submit"],
        request["script"],
        request["prefix"],
        _without_options(environ),
        is_quick=bool(request.get("quick")),
    )


def find(job: EngineJob, _folder: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Return id and cluster of a job, by its comment."""
    return sbatch.job_of_comment(job.prefix, job.comment, environ)


def withdraw(job: EngineJob, _folder: str, environ: Mapping[str, str]) -> None:
    """Cancel a job. Raises SubmitError."""
    sbatch.cancel(job, environ)


def look(runs: Mapping[str, EngineJob], home: str) -> Mapping[str, SlurmJob | None]:
    """Return {folder: job} for runs, with one call of squeue for those of a site's prefix."""
    keys: dict[tuple[str, ...], list[str]] = {}
    for job in runs.values():
        keys.setdefault(tuple(job.prefix), []).append(job.key)
    answers: dict[tuple[tuple[str, ...], str], SlurmJob | None] = {}
    for prefix, members in keys.items():
        answer_of = query.look(members, _run(prefix), folder=home)
        answers |= {(prefix, key): answer_of[key] for key in members}
    result: dict[str, SlurmJob | None] = {}
    for folder, job in runs.items():
        answer = result[folder] = answers[tuple(job.prefix), job.key]
        for task in answer.tasks if answer is not None else ():
            _add_memory(task, arrays.task_folder(folder, task.id))
        _add_memory(answer, folder)
    return result


def _add_memory(job: SlurmJob | None, folder: str) -> None:
    """Add that a step was killed for memory, where only the log of the script tells of it."""
    if job is not None and job.state == jobs.FAILED and batch_log.tells_of_memory(folder):
        job.derived_signal = slurm.OOM_SIGNAL


def task(answer: SlurmJob | None, index: int) -> SlurmJob | None:
    """Return a task of an array; where nothing is known of the whole, that."""
    if answer is None or not answer.state:
        return answer
    return jobs.find(answer.tasks, f"{answer.number}_{index}")


def with_tasks(request: Mapping[str, Any], numbers: Sequence[int]) -> Mapping[str, Any]:
    """Return a request whose script has only some tasks of its array."""
    path, text = request["script"]
    return {**request, "script": [path, arrays.with_tasks(text, numbers)]}


def _run(prefix: Sequence[str]) -> Callable[[Sequence[str]], commands.CommandResult]:
    """Return what runs a command of Slurm behind the words of the site."""
    return lambda argv: query.run_command([*prefix, *argv])


def meaning(
    answer: SlurmJob | None, status: Status | None, life: int | None, now: float
) -> Meaning:
    """Return what a job and the status of a node mean."""
    return slurm.meaning(answer, status, life=life, now=now)


def is_settled(answer: SlurmJob | None, now: float) -> bool:
    """Whether Slurm has ended the job for good, and long ago."""
    if answer is None:
        return True
    ended = answer.ended_at
    is_end = answer.state in jobs.ENDS and not answer.flags
    return is_end and ended is not None and now - ended > SETTLING


def is_begun(job: EngineJob, _folder: str) -> bool:
    """Whether a job no longer waits in the queue."""
    return _state(job) not in ("PENDING", "")


def cancel_waiting(job: EngineJob) -> None:
    """Cancel the tasks of an array that have not begun."""
    words = ["scancel", *_cluster(job), "--state=PENDING", job.job]
    commands.run([*job.prefix, *words], limit=LIMIT)


def end(job: EngineJob, _folder: str) -> tuple[bool, str]:
    """Cancel a job, and wait until it is gone."""
    commands.run([*job.prefix, "scancel", *_cluster(job), job.job], limit=LIMIT)
    deadline = time.monotonic() + CANCEL_PATIENCE
    while (state := _state(job)) and time.monotonic() < deadline:
        time.sleep(POLL)
    return not state, ""


def _cluster(job: EngineJob) -> list[str]:
    return [f"--clusters={job.cluster}"] if job.cluster else []


def _state(job: EngineJob) -> str:
    """Return the state of a job in the queue, "" of one that is not there, `unknown` if silent.

    Of an array that of a task which no longer waits, if there is one.
    """
    words = ["squeue", *_cluster(job), "--noheader", "--format=%T", f"--jobs={job.job}"]
    answer = commands.run([*job.prefix, *words], limit=LIMIT)
    if answer.code == 0 or "invalid job id" in answer.err.lower():
        states = answer.out.split()
        return next((state for state in states if state != jobs.PENDING), "".join(states[:1]))
    return "unknown"


def shell(job: EngineJob, host: str) -> tuple[str, ...]:
    """Return the words that open a shell on a node."""
    cluster = _cluster(job)
    words = ["--overlap", f"--nodelist={host}", "--nodes=1", "--ntasks=1", "--pty", "bash"]
    return (*job.prefix, "srun", *cluster, f"--jobid={job.job}", *words)


def allocation(environ: Mapping[str, str]) -> Allocation:
    """Return the nodes of the step that this process is a task of. Raises JoinError."""
    return step.of_step(environ)


def node_name(environ: Mapping[str, str]) -> str:
    """Return Slurm's name of this machine."""
    return environ.get("SLURMD_NODENAME") or os.uname().nodename
