"""Starts a plan on this machine: calls runtime/start in this process."""

# ruff: noqa: PLC0415 - the probe: only where a profile asks for versions

from __future__ import annotations

import errno
import os
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING

from safelaunch.errors import StartError
from safelaunch.model import Slot, bind_word
from safelaunch.runs import store
from safelaunch.runtime import backends
from safelaunch.runtime.progress import checkpoints
from safelaunch.runtime.records import NodePlace
from safelaunch.runtime.start import starter
from safelaunch.start import preflight
from safelaunch.start.caller import Caller, Started
from safelaunch.start.local_probe import LocalProbe
from safelaunch.start.resume import CheckpointChoice, checkpoint_glob, choose_checkpoint
from safelaunch.start.run_files import start_request
from safelaunch.start.scripts import late_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.model import NodePlan, Plan
    from safelaunch.start.caller import RunsCheck
    from safelaunch.start.preflight import MachineReport
    from safelaunch.start.run_files import StartRequest


def start(
    plan: Plan,
    caller: Caller,
    *,
    foreground: bool = False,
    more: Mapping[str, bytes] = MappingProxyType({}),
    check: RunsCheck | None = None,
    probe: LocalProbe | None = None,
) -> Started:
    """Start a plan on this machine, with `more` files in its run directory.

    `probe` is that of this machine, where it runs already; `check` is made again where another run
    was started meanwhile. Raises StartError or Refused, with nothing left behind.
    """
    node = _only_node(plan)
    preflight.check_secrets(node, caller.environ)
    preflight.check_assets(node.assets)
    run_id = caller.run_id(plan.name)
    probe = probe or LocalProbe(node, caller.environ)
    report, versions = machine_report(node, caller, probe)
    facts = preflight.facts(node, report, run_id)
    choice = newest_checkpoint(plan, caller)
    late = late_values.of_waiting(choice.plan, run_id, waits=caller.waits)
    facts |= {**choice.facts(0, report.home), **late}
    request = start_request(
        choice.plan,
        facts,
        caller,
        caller.environ if report.container is None else {},
        versions=versions,
        more=more,
        packages=[preflight.package_versions(node, report.probe)],
        container=report.container,
    ).waiting(late)
    if plan.services:
        from safelaunch.start.services import local_reports, with_services

        request = with_services(request, plan, caller, facts, local_reports(plan, caller))
    if plan.fan_out is not None:
        from safelaunch.start.fan_out import with_parts

        request = with_parts(request, plan, caller, facts, report, versions=versions)
    if foreground:
        request.run.foreground, request.run.backend = os.getpid(), backends.setsid.NAME
    answer = _request_start(request, caller, check, probe)
    run, record = store.Run(run_id, os.path.dirname(answer.run_dir)), answer.run
    if not answer.started:
        raise StartError(f"the run directory {run.folder} exists; start again")
    note = record.backend_note
    backend, handle = backends.from_record(record)
    return Started(
        run=run,
        places=[NodePlace(host="localhost", node=0, run_dir=run.node_dir)],
        notes=tuple(n for n in (note, choice.note, *record.decisions, *request.notes) if n),
        attach=backend.attach(handle),
        supervisor=answer.supervisor,
        recorder=answer.recorder,
    )


def _request_start(
    request: StartRequest, caller: Caller, check: RunsCheck | None, probe: LocalProbe
) -> starter.StartAnswer:
    """Return the answer of the starter of this machine. Raises StartError, Refused."""
    words = {"run": request.run.to_json(), **request.words}
    while True:
        checked = {} if check is None else {"checked": check.digest(0)}
        try:
            body = b"".join(request.data)
            words = {**words, **checked}
            answer = starter.start(words, body, caller.environ, caller.home, probe.backends)
        except starter.StartFailed as e:
            raise StartError(str(e)) from e
        except OSError as e:
            message = f"{e.strerror} ({e.filename})" if e.filename else e.strerror or str(e)
            hint = "export SAFELAUNCH_HOME=/a/folder/with/space to put runs elsewhere"
            if e.errno == errno.EFBIG:
                hint = "`ulimit -f` allows too small a file; raise it in this shell"
            raise StartError(message, hint=hint if "run directory" in message else None) from e
        if check is None or answer.others is None:
            return answer
        check.check_again(0, answer.others)


def machine_report(
    node: NodePlan, caller: Caller, probe: LocalProbe
) -> tuple[MachineReport, dict[str, str]]:
    """Return what this machine and the job's interpreter report, and versions for open gates."""
    request, versions = preflight.version_request(node, probe.python or None), None
    if request is not None and probe.python:
        from safelaunch.runtime.facts.probe import Probe

        versions = Probe(request)
    report = probe.report(caller.home)
    if report.container is not None:
        from safelaunch.start.container import gate_versions

        return report, gate_versions(report.container)
    if versions is None:
        return report, {}
    values = preflight.versions(versions.answer(), preflight.saved_versions(caller.home))
    request = preflight.peer_request(node, values)
    if request is not None:
        values = preflight.versions(Probe(request).answer(), values)
    return report, values


def newest_checkpoint(plan: Plan, caller: Caller) -> CheckpointChoice:
    """Return the checkpoint in the job's folder here that a plan resumes from. Raises Refused."""
    pattern = checkpoint_glob(plan)
    if pattern is None:
        return CheckpointChoice(plan)
    home = {Slot.HOME: caller.environ.get("HOME", "")}
    cwd = str(bind_word(plan.nodes[0].cwd, home))
    return choose_checkpoint(plan, [checkpoints.whole(pattern, cwd)])


def _only_node(plan: Plan) -> NodePlan:
    if not sys.platform.startswith("linux"):
        raise StartError(
            f"jobs run on Linux, not on {sys.platform}",
            hint="start it on a Linux host with `safelaunch remote --host NAME`",
        )
    if plan.engine is not None:
        name = plan.engine.engine_name
        raise StartError(f"this plan is for {name}", hint=f"safelaunch run --on {name}")
    if len(plan.nodes) > 1:
        raise StartError(
            f"this job has {len(plan.nodes)} nodes; `run` starts this machine only",
            hint="start the lines that --dry-run prints by hand, one on each node",
        )
    return plan.nodes[0]
