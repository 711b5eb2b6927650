"""The Python API: plans, starts and watches runs as the commands do, and prints nothing.

    from safelaunch import api

    run = api.start(api.plan("train.yaml", profile="rtx5090"))
    for data in run.log(api.LogRequest(follow=True)):
        sys.stdout.buffer.write(data)
    print(run.wait().state)

Runs on hosts are started by `safelaunch remote`; `catalog` finds and watches them too.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from safelaunch.config.resolve import Flags, resolve_file
from safelaunch.plan.build import make_plan
from safelaunch.remote.runs.catalog import RunCatalog
from safelaunch.runs import store
from safelaunch.runs.access import LocalRun, LogRequest
from safelaunch.start import local
from safelaunch.start.caller import caller

__all__ = ["LogRequest", "catalog", "plan", "start"]

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.model import Plan
    from safelaunch.remote.host_pool import HostPool
    from safelaunch.runs.access import RunAccess


def plan(
    job_file: str, *, profile: str | None = None, sets: Sequence[str] = (), smoke: bool = False
) -> Plan:
    """Return the plan of a job file; `sets` are texts `KEY=VALUE`. Raises ConfigError.

    What the plan warns about is in its `warnings`.
    """
    flags = Flags(profile, tuple(sets), smoke=smoke)
    return make_plan(resolve_file(job_file, flags, os.getcwd()))


def start(plan: Plan, environ: Mapping[str, str] = os.environ) -> RunAccess:
    """Start a plan on this machine without the checks of `safelaunch check`.

    Raises StartError or Refused, with nothing left behind.
    """
    return LocalRun(local.start(plan, caller(environ)).run)


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
            from safelaunch.remote.host_pool import HostPool  # noqa: PLC0415 - for hosts only: 30 ms
            from safelaunch.remote.session import HostResolver  # noqa: PLC0415 - for hosts only

            if hosts_path not in pools:
                resolver = HostResolver(home, environ, hosts_path=hosts_path)
                pools[hosts_path] = stack.enter_context(HostPool(resolver))
            return pools[hosts_path]

        yield RunCatalog(home, connect)
