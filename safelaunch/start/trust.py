"""What a job file sends out of its project to hosts, and what the user has allowed of that.

A checkout of somebody else's may name any file and variable of this machine. What it names is
asked about once, and remembered in safelaunch's folder, for this user alone.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import Refused, RunError
from safelaunch.runtime import json_files
from safelaunch.runtime.plain_text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from safelaunch.config.resolve import Resolved

FILE = "trust.json"
VERSION = 1


class Reach(NamedTuple):
    """Something outside of a project that its job file names: an asset, a variable or a host."""

    kind: str  # asset, env, host
    value: str  # real path, name of the variable, name of the host
    shown: str


def job_reaches(
    resolved: Resolved, listed: Iterable[str], *, assets: bool = True
) -> tuple[Reach, ...]:
    """Return what a job file names outside its project; what flags name is not among it.

    `listed` are the hosts of the user's hosts file; without `assets` none of them is copied.
    """
    job, project = resolved.job, os.path.realpath(resolved.project)
    reaches: list[Reach] = []
    for asset in job.assets if assets else ():
        path = os.path.realpath(asset.path)
        if asset.origin.line and not _is_below(path, project):
            reaches.append(Reach("asset", path, f"asset `{asset.name}`: {path} is copied there"))
    for own in (job, *(service.resolved.job for service in resolved.services)):
        if own.env_from and own.origin("env_from").line:
            reaches += env_reaches(own.env_from)
    if job.hosts and job.origin("hosts").line:
        text = "host `{}`: it is not in your hosts file"
        unknown = [host.name for host in resolved.hosts if host.name not in set(listed)]
        reaches += [Reach("host", name, text.format(name)) for name in unknown]
    return tuple(dict.fromkeys(reaches))  # a service has the variables of its job too


def env_reaches(names: Iterable[str]) -> list[Reach]:
    """Return variables of this machine's environment whose values are sent to hosts."""
    return [Reach("env", name, f"variable {name}: its value is sent there") for name in names]


def _is_below(path: str, folder: str) -> bool:
    path, folder = os.path.normcase(path), os.path.normcase(folder)
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def on_hosts(hosts: Sequence[str]) -> list[str]:
    """Return the subjects that stand for hosts: for what was pushed there, and for `rerun`."""
    return [f"host:{host}" for host in hosts]


class Approvals:
    """What the user has allowed, by subject: the folder of a checkout, or a host."""

    def __init__(self, home: str) -> None:
        self._path = os.path.join(home, FILE)
        data = json_files.read_json(self._path) or {}
        rows = data.get("approved")
        rows = rows if isinstance(rows, list) and data.get("version") == VERSION else []
        self._approved = {tuple(map(str, row)) for row in rows if isinstance(row, list)}

    def missing(
        self, subjects: Sequence[str], reaches: Iterable[Reach], hosts: Sequence[str] = ()
    ) -> list[Reach]:
        """Return what is not allowed for all subjects, without assets that all `hosts` have."""
        missing = [reach for reach in reaches if not self._allows(subjects, reach)]
        return [r for r in missing if r.kind != "asset" or not self._allows(on_hosts(hosts), r)]

    def _allows(self, subjects: Sequence[str], reach: Reach) -> bool:
        return bool(subjects) and all(
            (s, reach.kind, reach.value) in self._approved for s in subjects
        )

    def add(self, subjects: Iterable[str], reaches: Iterable[Reach]) -> None:
        """Record what is allowed. Raises OSError."""
        new = {(s, r.kind, r.value) for s in subjects for r in reaches} - self._approved
        if not new:
            return
        self._approved |= new
        os.makedirs(os.path.dirname(self._path), 0o700, exist_ok=True)
        rows = sorted(map(list, self._approved))
        json_files.write_json(self._path, {"version": VERSION, "approved": rows})


def confirm(
    approvals: Approvals,
    job: str,
    reaches: Sequence[Reach],
    hosts: Sequence[str],
    ask: Callable[[str], bool] | None,
    *,
    subjects: Sequence[str] = (),
) -> None:
    """Ask about what was not allowed before for the checkout `job`, or for `subjects` instead.

    What is allowed is recorded, so that it is asked about once. Without `ask` that is refused.
    Raises Refused, RunError.
    """
    subjects = subjects or [job]
    new = [printable(reach.shown) for reach in approvals.missing(subjects, reaches, hosts)]
    if new:
        message = f"the job reaches outside its project, for {', '.join(hosts)}"
        if ask is None:
            hint = "if you trust this job: --yes allows it, and remembers that"
            raise Refused(f"{message}: {'; '.join(new)}", where=job, hint=hint)
        lines = [f"{printable(job)}: {message}:", *(f"  {text}" for text in new)]
        if not ask("\n".join([*lines, "Allow this from now on?"])):
            raise Refused("not allowed: nothing was sent", where=job)
    try:
        approvals.add([*subjects, *on_hosts(hosts)], reaches)
    except OSError as e:
        raise RunError(f"cannot be written: {e.strerror}", where=e.filename) from e
