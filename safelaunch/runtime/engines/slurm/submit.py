"""Hands a script to sbatch, once, and returns what Slurm calls the job."""

from __future__ import annotations

import re

from safelaunch.runtime import commands
from safelaunch.runtime.engines.errors import SubmitError, UnclearSubmitError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from safelaunch.runtime.records import EngineJob

LIMIT = 60.0  # seconds: a busy slurmctld answers late
_PARSABLE = re.compile(r"([0-9]+)(?:;(\S+))?")  # `--parsable`: the id, and `;` a cluster


def submit(
    argv: Sequence[str],
    environ: Mapping[str, str],
    limit: float = LIMIT,
    on_start: Callable[[int], object] = lambda _: None,
) -> tuple[str, str]:
    """Run sbatch; return the job's id and its cluster, "" for the only one.

    `on_start` gets its pid. Raises SubmitError, with Slurm's words, and UnclearSubmitError where it
    did not answer in `limit` s.
    """
    command = commands.RunningCommand(argv, environ)
    if command.pid is not None:
        on_start(command.pid)
    answer = command.result(limit)
    lines = [line.strip() for line in answer.err.splitlines() if line.strip()]
    words = "; ".join(line.replace("sbatch: ", "").replace("error: ", "") for line in lines)
    if answer.code == commands.NOT_RUN:
        error = UnclearSubmitError if "did not answer" in answer.err else SubmitError
        raise error(words)
    if answer.code != 0:
        raise SubmitError(words or f"{argv[0]} ended with exit code {answer.code}")
    for line in reversed(answer.out.splitlines()):  # a site's wrapper may print a banner before it
        match = _PARSABLE.fullmatch(line.strip())
        if match:
            return match[1], match[2] or ""
    raise UnclearSubmitError(f"`{argv[0]}` printed no job id: {answer.out.strip()[:200]!r}")


def job_of_comment(
    prefix: Sequence[str], comment: str, environ: Mapping[str, str] | None = None
) -> tuple[str, str] | None:
    """Return id and cluster of the job with a comment; two empty texts where there is none.

    After an sbatch that did not answer it says whether the job was accepted. None where Slurm does
    not answer. A job that has ended is listed for MinJobAge.
    """
    argv = (*prefix, "squeue", "--me", "--states=all", "--noheader", "--format=%i|%k")
    answer = commands.RunningCommand(argv, environ).result(LIMIT)
    if answer.code != 0:
        return None
    for line in answer.out.splitlines():
        job, _, text = line.partition("|")
        if text.strip() == comment:
            return job.strip().partition("_")[0], ""  # of an array the whole
    return "", ""


def cancel(job: EngineJob, environ: Mapping[str, str] | None = None) -> None:
    """Cancel a job that was just submitted, or is found by its comment. Raises SubmitError."""
    number, cluster = job.job, job.cluster
    if not number:
        accepted = job_of_comment(job.prefix, job.comment, environ)
        if accepted is None:
            raise SubmitError("Slurm does not say whether it has the job")
        number, cluster = accepted
    if number:
        options = [f"--clusters={cluster}"] if cluster else []
        argv = (*job.prefix, "scancel", *options, number)
        answer = commands.RunningCommand(argv, environ).result(LIMIT)
        if answer.code != 0:
            raise SubmitError(answer.err.strip() or f"scancel ended with exit code {answer.code}")


def partitions(
    prefix: Sequence[str], environ: Mapping[str, str], *, with_limits: bool = False
) -> list[str]:
    """Return the names of all partitions, or what they have; none where sinfo does not answer."""
    form = "%R (%D nodes of %c CPUs and %m MB, %l)" if with_limits else "%R"
    argv = (*prefix, "sinfo", "--noheader", f"--format={form}")
    answer = commands.RunningCommand(argv, environ).result(LIMIT)
    lines = [line.strip() for line in answer.out.splitlines() if line.strip()]
    return list(dict.fromkeys(lines)) if answer.code == 0 else []
