"""The script of a later attempt, and what the log says of it: its checkpoint, changed code."""

# ruff: noqa: PLC0415 - for a later attempt, or beside the job

from __future__ import annotations

import os

from safelaunch.runtime import json_files
from safelaunch.runtime.plain_text import printable, shortened
from safelaunch.runtime.records import Provenance
from safelaunch.runtime.supervise.node_run import free_port

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.messages.ends import Decision
    from safelaunch.runtime.records import AttemptRecord
    from safelaunch.runtime.supervise.node_run import NodeRun


def write(node: NodeRun, number: int, decision: Decision) -> tuple[str, int | None]:
    """Write the script of a later attempt, with a fresh port. Raises OSError, ValueError.

    Of several nodes the first has chosen the port, which is its own.
    """
    again = node.run.again
    if again is None or not again.scripts:
        raise ValueError("run.json has no script for it")
    is_fresh = again.checkpoint is not None and decision.checkpoint is None
    names = again.fresh if is_fresh else again.scripts
    name = names[min(decision.rung, len(names) - 1)]
    with open(os.path.join(node.dir, name), "rb") as file:
        text = file.read()
    token, port = again.token.encode(), None
    if token in text:
        port = decision.port if "port" in decision else free_port(number)
        if port is None:
            raise ValueError("no free port")
        text = text.replace(token, b"%d" % port)
    if again.checkpoint is not None and decision.checkpoint is not None:
        checkpoint = os.path.join(node.run.cwd, decision.checkpoint)
        word = os.fsencode(checkpoint.replace("'", again.quote))
        text = text.replace(again.checkpoint.encode(), word)
    path = os.path.join(node.dir, f"launch.{number}.sh")
    json_files.write(path, text, 0o700)
    return path, port


def write_for_life(node: NodeRun, number: int, record: AttemptRecord) -> str:
    """Write the script of the first attempt of a later life. Raises OSError."""
    from safelaunch.runtime.messages.ends import Decision

    record.rung = node.attempts[-1].rung if node.attempts else 0
    decision = Decision(rung=record.rung)
    if node.engine.port is not None:  # of several nodes one has chosen it
        decision.port = node.engine.port
    decision.checkpoint = record.resume_checkpoint = node.engine.checkpoint
    try:
        script, record.port = write(node, number, decision)
    except ValueError as e:
        raise OSError(str(e)) from e
    say_checkpoint(node, number, decision.checkpoint)
    return script


def say_checkpoint(node: NodeRun, number: int, checkpoint: str | None) -> None:
    """Write into the log what an attempt resumes from, where the job has a say in it."""
    again, policy = node.run.again, node.run.recovery
    if again is None or again.checkpoint is None or policy is None:
        return
    newer = f" ({printable(node.flaw)})" if node.flaw else ""
    if checkpoint is not None:
        what = f"resumes from {printable(checkpoint)}{newer}"
    else:
        what = f"starts from the beginning: no whole checkpoint matches `{policy.checkpoint}`"
        what += f"{newer}, so `resume_args` are left out"
    node.journal.notify(f"attempt {number} {what}")
    node.journal.event("resumes", attempt=number, checkpoint=checkpoint)


def say_changes(node: NodeRun, number: int, attempt: AttemptRecord) -> None:
    """Record which files of the code have changed since the start, and say so in the log."""
    from safelaunch.runtime.start import code_files

    try:
        record = Provenance.read(node.dir) or Provenance()
        files = code_files.used(record.files or {}, record.imported)
        names = code_files.changed(files, node.run.cwd)
    except Exception as e:  # noqa: BLE001 - no fault of ours may keep an attempt from starting
        node.journal.broken("comparison of the code", e)
        return
    if names:
        attempt.changed_files = names
        node.journal.event("code-changed", attempt=number, files=names)
        text = f"attempt {number}: the code has changed since the start: {shortened(names)}"
        if record.imported is None:
            text += " (files on disk: which of them the job imports is not known)"
        node.journal.notify(printable(text))


def record_imports(node: NodeRun) -> None:
    """Record which files of the code the ranks have imported so far."""
    try:
        record = Provenance.read(node.dir)  # None: its writer adds them itself
        if record is not None:
            from safelaunch.runtime.start import code_files

            imported = code_files.imported(node.dir, record.files or {}, node.run.cwd)
            if imported != record.imported:
                record.imported = imported
                record.write(node.dir)
    except Exception as e:  # noqa: BLE001 - no fault of ours may hide how the job ended
        node.journal.broken("record of the imported files", e)
