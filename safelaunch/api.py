"""The Python API: plans, starts and watches runs as the commands do, and prints nothing.

from safelaunch import api

run = api.start(api.plan("train.yaml", profile="rtx5090"))
for data in run.log(api.LogRequest(follow=True)):
    sys.stdout.buffer.write(data)
print(run.wait().state)

with api.catalog() as runs:
    run = api.start_remote(runs, "train.yaml", hosts=["gpu1"])
"""

# ruff: noqa: PLC0415 - what talks to hosts, 30 ms: only for runs on hosts

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.config.resolve import Flags, resolve_file
from safelaunch.plan.build import make_plan
from safelaunch.remote.runs.catalog import RunCatalog
from safelaunch.runs import groups, store
from safelaunch.runs.access import LocalRun, LogRequest
from safelaunch.runs.engine_run import EngineRun
from safelaunch.start import local
from safelaunch.start.caller import caller

__all__ = ["LogRequest", "catalog", "events", "plan", "start", "start_remote"]

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.model import Plan
    from safelaunch.remote.host_pool import HostPool
    from safelaunch.remote.runs.follow_events import Event
    from safelaunch.runs.access import RunAccess
    from safelaunch.start.caller import Caller
    from safelaunch.start.conditions.once import StartKey


def plan(
    job_file: str,
    *,
    profile: str | None = None,
    sets: Sequence[str] = (),
    smoke: bool = False,
    engine: str | None = None,
) -> Plan:
    """Return the plan of a job file; `sets` are texts `KEY=VALUE`. Raises ConfigError.

    `engine` is what chooses the machines: slurm, kubernetes. What the plan warns about is in its
    `warnings`.
    """
    flags = Flags(profile, tuple(sets), smoke=smoke, engine=engine)
    return make_plan(resolve_file(job_file, flags, os.getcwd()))


def start(
    plan: Plan,
    environ: Mapping[str, str] = os.environ,
    *,
    key: str | None = None,
    after: Sequence[RunAccess] = (),
    after_any: Sequence[RunAccess] = (),
) -> RunAccess:
    """Start a plan on this machine, or submit it to the engine that it is for, without checks.

    It begins once the runs `after` have succeeded, and those of `after_any` have ended. With a key
    that has started this plan before, it is that run. Raises StartError or Refused, with nothing
    left behind, and ConfigError for an earlier run of another place.
    """
    by = caller(environ)
    if key is None:
        return _start(plan, by, after, after_any)
    with catalog(environ) as runs, _once(key, plan, by, runs) as (lock, earlier):
        if earlier is not None:
            return earlier
        lock.record(by.run_id(plan.name), plan)
        return _start(plan, by, after, after_any)


@contextlib.contextmanager
def _once(
    key: str, plan: Plan, by: Caller, runs: RunCatalog
) -> Iterator[tuple[StartKey, RunAccess | None]]:
    """Lock a key; yield it with the run of that plan that it has started before."""
    from safelaunch.start.conditions.once import StartKey

    lock = StartKey(by.home, key)
    try:
        yield lock, lock.run_of(plan, by.home, runs.open)
    finally:
        lock.release()


def _after(
    plan: Plan,
    by: Caller,
    runs: Sequence[RunAccess],
    any_end: Sequence[RunAccess],
    hosts: Sequence[str],
) -> tuple[Plan, Caller]:
    from safelaunch.start.conditions.earlier_runs import after_runs

    earlier = [*((run, False) for run in runs), *((run, True) for run in any_end)]
    plan, after = after_runs(plan, earlier, hosts)
    return plan, by._replace(after=after)


def _start(
    plan: Plan, by: Caller, after: Sequence[RunAccess], after_any: Sequence[RunAccess]
) -> RunAccess:
    if after or after_any:
        plan, by = _after(plan, by, after, after_any, ())
    if plan.engine is not None:
        from safelaunch.start import engine

        return EngineRun(engine.submit(plan, by).run)
    return LocalRun(local.start(plan, by).run)


def start_remote(
    runs: RunCatalog,
    job_file: str,
    *,
    hosts: Sequence[str] = (),
    hosts_path: str | None = None,
    profile: str | None = None,
    sets: Sequence[str] = (),
    smoke: bool = False,
    sync: bool = True,
    key: str | None = None,
    after: Sequence[RunAccess] = (),
    after_any: Sequence[RunAccess] = (),
    environ: Mapping[str, str] = os.environ,
) -> RunAccess:
    """Sync the project to hosts, by default those of the job file, and start it there, unchecked.

    `runs` is what `catalog` yields; `key`, `after` and `after_any` are as in `start`. A sync
    overwrites no file that was changed on a host, and sends at most 500 MB. Raises ConfigError,
    HostError, Refused, and StartError with nothing left behind.
    """
    from safelaunch.remote.start.key_on_hosts import run_of_key
    from safelaunch.remote.start.prepare import prepare
    from safelaunch.remote.start.start import start as start_prepared
    from safelaunch.remote.transfer import ProjectSync

    path = hosts_path or hosts_file.default_path(runs.home)
    flags = Flags(profile, tuple(sets), path, smoke=smoke, remote=True, hosts=tuple(hosts))
    resolved = resolve_file(job_file, flags, os.getcwd())
    plan, by = make_plan(resolved), caller(environ)
    names = list(dict.fromkeys(host.name for host in resolved.hosts))

    hosts_file_path = os.path.abspath(hosts_path) if hosts_path else None

    def start_job(lock: StartKey | None) -> RunAccess:
        waiting, own = plan, by
        if after or after_any:
            waiting, own = _after(plan, by, after, after_any, names)
        own = own._replace(key=key or "")
        pool = runs.connect(hosts_file_path)
        prepared = prepare(waiting, names, pool, own, sync=ProjectSync(resolved, is_sent=sync))
        if lock is not None:
            lock.record(prepared.run_id, plan)
        return runs.open(start_prepared(prepared).run)

    if key is None:
        return start_job(None)
    with _once(key, plan, by, runs) as (lock, earlier):
        if earlier is not None:
            return earlier
        of_other_client = run_of_key(runs, key, plan, names, hosts_file_path)
        return of_other_client or start_job(lock)


def events(
    runs: RunCatalog,
    name: str | None = None,
    *,
    since: str | None = None,
    follow: bool = False,
    interval: float = 5.0,
) -> Iterator[Event]:
    """Yield what happens to a run, or to all: objects with `data` and the `cursor` behind them.

    A name may be that of a group. `runs` is what `catalog` yields; `since` is the cursor of an
    earlier event. `interval` are the seconds between two events with the steps of a run. Raises
    RunNotFound, ConfigError.
    """
    from safelaunch.remote.runs.follow_events import EventFollower

    follower = EventFollower(runs, since, follows=follow, interval=interval)
    group = groups.find(runs.home, name)
    if group is not None:
        yield from follower.of_group(group)
    else:
        yield from follower.of_all() if name is None else follower.of_run(runs.find(name).record)


@contextlib.contextmanager
def catalog(environ: Mapping[str, str] = os.environ) -> Iterator[RunCatalog]:
    """Yield the recorded runs, here and on hosts; its connections are closed at the end.

    Nobody is asked for a password: a host has to let a key in.
    """
    home = store.home(environ)
    with contextlib.ExitStack() as stack:
        pools: dict[str | None, HostPool] = {}

        def connect(hosts_path: str | None, *, may_prompt: bool = True) -> HostPool:
            del may_prompt
            from safelaunch.remote.host_pool import HostPool
            from safelaunch.remote.session import HostResolver

            if hosts_path not in pools:
                pools[hosts_path] = HostPool(HostResolver(home, environ, hosts_path=hosts_path))
                stack.callback(pools[hosts_path].close)
            return pools[hosts_path]

        yield RunCatalog(home, connect)
