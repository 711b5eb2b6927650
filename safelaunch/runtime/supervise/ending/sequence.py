"""What follows the end of a run, in order: its commands, the upload, the shutdown.

The run's own state is recorded before, and nothing here changes it. A signal ends what runs, and
nothing of the rest begins.
"""

# ruff: noqa: PLC0415 - upload and shutdown: few runs have them

from __future__ import annotations

import os

from safelaunch.runtime.plain_text import shortened
from safelaunch.runtime.records import EndPlan, EndReport, EndStep, Failure
from safelaunch.runtime.supervise.ending.run_command import Commands
from safelaunch.runtime.supervise.ending.words import DONE, FAILED, RUNNING, STOPPED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.runtime.records import RunRecord
    from safelaunch.runtime.supervise.control import Control
    from safelaunch.runtime.supervise.journal import Journal


def warn_of_missing(journal: Journal) -> None:
    """Warn at the start that the program of the upload is not there, which fails hours later."""
    upload = journal.run.ending.upload if journal.run.ending is not None else None
    if upload is None or upload.program != "rclone" or journal.run.node:
        return
    import shutil

    if shutil.which("rclone") is None:
        journal.warn("rclone is not on PATH here: the upload at the end of the run would fail")
        journal.save()


def announce(journal: Journal) -> bool:
    """Set in the status that something follows the end, before that is written; False if not.

    Only node 0 does it, and only once no life of the run can follow.
    """
    run, status = journal.run, journal.status
    if run.ending is None or run.node or status.state == "pending":
        return False
    plan = run.ending
    has_more = any(True for _ in commands(plan, status.state)) or plan.upload or plan.shutdown
    if has_more:
        status.ending = EndReport(state=RUNNING, what="its commands run")
    return bool(has_more)


def commands(plan: EndPlan, state: str) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the commands after an end in that state, each with the key that it comes from."""
    lists = {
        "succeeded": ("on_success", plan.on_success),
        "failed": ("on_failure", plan.on_failure),
    }
    for name, words in (lists.get(state, ("", ())), ("on_end", plan.on_end)):
        yield from ((name, command) for command in words)


def execute(journal: Journal, control: Control, umask: int) -> None:
    """Run what follows the end. Raises OSError."""
    run, status = journal.run, journal.status
    plan, report = run.ending or EndPlan(), status.ending or EndReport()
    runner = Commands(journal, control, facts(journal), umask)
    for name, words in commands(plan, status.state):
        if runner.is_stopped:
            break
        runner.run(name, words, plan.timeout)
    if plan.upload is not None and not runner.is_stopped:
        from safelaunch.runtime.supervise.ending import upload

        upload.run(runner, plan.upload, results_folder(run))
    if plan.shutdown is not None and not runner.is_stopped:
        from safelaunch.runtime.supervise.ending import shutdown

        shutdown.run(runner, plan.shutdown, plan)
    report.shutdown_at = None
    report.state, report.what = _result(report, is_stopped=runner.is_stopped)
    journal.save()
    journal.event("end-commands", state=report.state, what=report.what)


def abandon(journal: Journal, error: Exception) -> None:
    """Record that a fault of our own has ended it."""
    report = journal.status.ending or EndReport()
    report.state, report.what, report.shutdown_at = FAILED, f"safelaunch's own fault: {error}", None
    journal.save()


def failed(report: EndReport) -> list[EndStep]:
    """Return the steps that have not succeeded."""
    return [step for step in report.steps if step.state not in ("succeeded", "running")]


def _result(report: EndReport, *, is_stopped: bool) -> tuple[str, str]:
    names = [f"{step.name} ({step.what})" for step in failed(report)]
    if is_stopped:
        return STOPPED, "stopped by a person; nothing more of it runs"
    refusal = [report.what] if report.state == FAILED else []
    if not names and not refusal:
        return DONE, ""
    return FAILED, "; ".join([*([shortened(names)] if names else []), *refusal])


def results_folder(run: RunRecord) -> str:
    """Return where the files of the job are: what its own copy had is in the project's folder."""
    if run.tree and run.place and not os.path.isdir(run.cwd):
        return run.place + run.cwd[len(run.tree) :]
    return run.cwd


def facts(journal: Journal) -> dict[str, str]:
    """Return what the commands have of the run in their environment."""
    run, status = journal.run, journal.status
    failure = (Failure.read(journal.dir) if status.state == "failed" else None) or Failure()
    last = status.attempts[-1] if status.attempts else None
    values = {
        "SAFELAUNCH_NAME": run.name,
        "SAFELAUNCH_STATE": status.state,
        "SAFELAUNCH_EXIT_CODE": "" if status.exit_code is None else str(status.exit_code),
        "SAFELAUNCH_REASON": status.reason or failure.what,
        "SAFELAUNCH_FAILURE_CLASS": failure.class_name or "",
        "SAFELAUNCH_NODE_DIR": journal.dir,
        "SAFELAUNCH_LOG": os.path.join(journal.logs, "combined.log"),
        "SAFELAUNCH_ATTEMPT": str(last.attempt if last is not None else 0),
        "SAFELAUNCH_ELAPSED": str(status.elapsed or 0.0),
        "SAFELAUNCH_CHECKPOINT": _checkpoint(run) or "",
    }
    return {name: value.replace("\0", "") for name, value in values.items()}


def _checkpoint(run: RunRecord) -> str | None:
    """Return the path of the newest whole checkpoint, where the job says what those are."""
    pattern = run.recovery.checkpoint if run.recovery else None
    if pattern is None:
        return None
    from safelaunch.runtime.progress import checkpoints

    folder = results_folder(run)
    paths, _ = checkpoints.whole(pattern, folder)
    return os.path.join(folder, paths[0]) if paths else None
