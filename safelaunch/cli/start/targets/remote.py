"""Starts a plan on hosts for `remote` and `rerun`: with questions and messages at the terminal."""

# ruff: noqa: PLC0415 - rerun_sync: `remote` sends the project of today

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import click

from safelaunch.checks import machines
from safelaunch.cli import plan_options as shared
from safelaunch.cli import start_key
from safelaunch.cli.check.quick import report
from safelaunch.cli.connections import catalog, host_pool
from safelaunch.cli.plan_text.plan import print_warnings
from safelaunch.cli.start.targets.after_start import check_output, show_earlier, show_started
from safelaunch.cli.start.targets.earlier_runs import waiting_plan
from safelaunch.cli.start.targets.local import interruptible
from safelaunch.cli.transfer.progress_bar import Bar
from safelaunch.plan.build import make_plan
from safelaunch.remote.start.prepare import Checks, prepare
from safelaunch.remote.start.start import start as start_prepared
from safelaunch.remote.transfer import ProjectSync
from safelaunch.start import trust
from safelaunch.start.caller import caller
from safelaunch.start.resume import resume_run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.config.resolve import Resolved
    from safelaunch.model import Plan
    from safelaunch.remote.start.prepare import PreparedStart
    from safelaunch.runs.access import RunAccess
    from safelaunch.runs.store import Run
    from safelaunch.runtime.records import EarlierRun, RemoteRecord
    from safelaunch.start.caller import Caller, Started


def start(resolved: Resolved, options: dict[str, Any]) -> int:
    """Start a job on its hosts; return the exit code of the command."""
    check_output(options, "remote")
    plan = make_plan(resolved)
    names = list(dict.fromkeys(host.name for host in resolved.hosts))
    earlier = start_key.earlier_run(plan, options) or _run_of_key(plan, names, options)
    if earlier is not None:
        return show_earlier(earlier, options, "remote")
    plan, after = waiting_plan(plan, options, names)
    by = caller(os.environ)._replace(after=after, key=options["key"] or "")
    prepared = _prepared(resolved, plan, by, options)
    start_key.record(prepared.run_id)
    return _start(prepared, options)


def _run_of_key(plan: Plan, names: Sequence[str], options: dict[str, Any]) -> RunAccess | None:
    """Return the run that another client of the user has started there with the key, if any."""
    if options["key"] is None:
        return None
    from safelaunch.remote.start.key_on_hosts import run_of_key

    path = os.path.abspath(options["hosts_file"]) if options["hosts_file"] else None
    run = run_of_key(catalog(), options["key"], plan, names, path)
    if run is not None:
        start_key.record(run.id)
    return run


def start_plan(resolved: Resolved, plan: Plan, by: Caller, options: dict[str, Any]) -> Started:
    """Start a plan of a resolved job on its hosts. Raises SafelaunchError."""
    return start_prepared(_prepared(resolved, plan, by, options))


def _prepared(resolved: Resolved, plan: Plan, by: Caller, options: dict[str, Any]) -> PreparedStart:
    """Connect, check and sync, with the questions that this needs."""
    names = list(dict.fromkeys(host.name for host in resolved.hosts))
    checks = None
    if not options["no_check"]:
        context = machines.for_plan(resolved, plan, os.environ, is_quick=True)
        checks = Checks(context, report)
    if shared.wants_resume(options):
        plan = resume_run(plan, by.home, options["resume_from"])
    print_warnings(plan, is_start=True)
    hosts_path = os.path.abspath(options["hosts_file"]) if options["hosts_file"] else None
    pool = host_pool(hosts_path)
    reaches = trust.job_reaches(resolved, pool.listed, assets=not options["no_sync"])
    project = os.path.realpath(resolved.project)
    trust.confirm(trust.Approvals(by.home), project, reaches, names, _allow(options))
    with Bar() as bar:
        sync = ProjectSync(
            resolved,
            is_sent=not options["no_sync"],
            delete=options["delete"],
            force=options["force"],
            confirm=_allow(options),
            report=bar.say,
            progress=bar.show,
        )
        return prepare(plan, names, pool, by, checks=checks, sync=sync)


def again(
    plan: Plan,
    run: Run,
    pointer: RemoteRecord,
    options: dict[str, Any],
    inputs: tuple[tuple[EarlierRun, ...], ...] = (),
) -> int:
    """Start a recorded plan again on its hosts, with its code or that of today.

    `inputs` are the earlier steps of each node.
    """
    check_output(options, "rerun")
    plan, after = waiting_plan(plan, options, _hosts(plan, pointer), inputs)
    by = caller(os.environ)._replace(after=after)
    return _start(_prepared_again(plan, by, run, pointer, options), options)


def start_again(
    plan: Plan, by: Caller, run: Run, pointer: RemoteRecord, options: dict[str, Any]
) -> Started:
    """Start a recorded plan again on its hosts. Raises SafelaunchError."""
    return start_prepared(_prepared_again(plan, by, run, pointer, options))


def _hosts(plan: Plan, pointer: RemoteRecord) -> list[str]:
    names = [place.host for place in pointer.places]
    return names[:1] if plan.engine is not None else names  # the login node


def _prepared_again(
    plan: Plan, by: Caller, run: Run, pointer: RemoteRecord, options: dict[str, Any]
) -> PreparedStart:
    from safelaunch.remote.start.rerun_sync import RerunSync, sync_again

    names, pool = _hosts(plan, pointer), host_pool(pointer.hosts_file)
    # the plan of a run that another machine started comes from the host
    nodes = [node for own in (plan, *(s.plan for s in plan.services)) for node in own.nodes]
    reaches = trust.env_reaches(dict.fromkeys(name for node in nodes for name in node.secrets))
    approvals, subjects = trust.Approvals(by.home), trust.on_hosts(names)
    trust.confirm(approvals, pointer.id, reaches, names, _allow(options), subjects=subjects)
    prepared = prepare(plan, names, pool, by)
    with Bar() as bar:
        sync = RerunSync(
            nodes=tuple(place.node for place in pointer.places),
            is_current=options["current"],
            force=options["force"],
            confirm=_allow(options),
            report=bar.say,
        )
        return sync_again(prepared, run, sync)


def _start(prepared: PreparedStart, options: dict[str, Any]) -> int:
    with interruptible():  # of several nodes all start, or none
        started = start_prepared(prepared, follow=bool(options["follow"]))
        if not options["follow"]:
            return show_started(started, options)
    return show_started(started, options)


def _allow(options: dict[str, Any]) -> Callable[[str], bool] | None:
    """Return what answers questions: `--yes`, or the user at a terminal."""
    if options["yes"]:
        return lambda _: True
    return _confirm if sys.stdin.isatty() else None


_one_question = threading.Lock()


def _confirm(question: str) -> bool:
    with _one_question:
        return click.confirm(question, err=True)
