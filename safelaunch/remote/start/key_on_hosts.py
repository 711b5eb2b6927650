"""The run that a key has started on hosts, whichever client of the user has started it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from safelaunch.errors import HostError, Refused
from safelaunch.remote.parallel import together
from safelaunch.runs import mirror, store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.model import Plan
    from safelaunch.remote.runs.catalog import RunCatalog
    from safelaunch.runs.access import RunAccess


def run_of_key(
    runs: RunCatalog, key: str, plan: Plan, hosts: Sequence[str], hosts_path: str | None
) -> RunAccess | None:
    """Return the run of a key on any of these hosts, recorded here too; None for none.

    Raises HostError where one does not answer, and Refused where it is of another job.
    """
    pool = runs.connect(hosts_path)

    def ask(host: str) -> str:
        return str(pool.call(host, "start.key", key=key)["id"])

    names = [name for name in together(ask, hosts) if name]
    if not names or not store.is_run_id(names[0]):
        return None
    for answer in runs.on_hosts(list(hosts), hosts_path):
        if answer.error is not None:
            raise answer.error
    run = mirror.run_by_id(runs.home, names[0])
    if not os.path.isdir(run.folder):
        raise HostError(f"the key `{key}` has started {run.id}, of which it shows nothing")
    if run.name != plan.name:
        what = f"the key `{key}` has started {run.id} there, which is another job"
        raise Refused(what, where="--id", hint="use another key")
    return runs.open(run)
