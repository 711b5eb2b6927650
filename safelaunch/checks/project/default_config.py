"""Checks whether a config file of the user says more about the launcher than the job does."""

# ruff: noqa: PLC0415 - what reads the file is imported only where there is one

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from safelaunch import launchers
from safelaunch.checks.answers import Answer, warn
from safelaunch.checks.registry import check
from safelaunch.errors import ConfigError
from safelaunch.launchers.flag_table import flag_values

if TYPE_CHECKING:
    from safelaunch.checks.context import CheckContext

_SHOWN = 5  # of several flags


@check("default-config", once=True, quick=True)
def default_config(context: CheckContext) -> Answer | None:
    """Whether the launcher's default config file, which a job file does not use, says no more.

    A pasted line has read that file already. One that the launcher would refuse says nothing.
    """
    job, resolved = context.job, context.resolved
    launcher = launchers.load(job.launcher)
    table = launcher.FLAGS
    file = table.config_file if table is not None else None
    if table is None or file is None or not context.is_local or resolved is None or resolved.line:
        return None
    topology = job.topology
    values = {"processes": str(topology.world_size or 2), "nodes": str(topology.nodes)}
    values |= {"gpus": "all", "mixed_precision": job.mixed_precision or ""}
    own = {flag: values[key] for flag, key in table.keys.items() if values.get(key)}
    flags = own | flag_values(job.launcher_args, table)
    path = file.default(flags, context.environ)
    is_cpu = resolved.profile is not None and resolved.profile.accelerator == "cpu"
    if path is None or file.flag in flags or is_cpu or not os.path.isfile(path):
        return None
    from safelaunch.config.launcher_config import read_settings

    try:
        added = file.complete(read_settings(path, path), flags)
    except ConfigError:
        return None
    # a port of the file is no loss: each start takes a free one; "no" is what a job has anyway
    more = [
        " ".join((flag.name, *(flag.values or ())))
        for flag in added
        if not flag.name.endswith("_port") and flag.values != ("no",)
    ]
    if not more:
        return None
    shown = ", ".join(more[:_SHOWN]) + f" and {len(more) - _SHOWN} more" * (len(more) > _SHOWN)
    by_hand = launcher.PROGRAMS[0]
    return warn(
        f"{path}, which `{by_hand}` by hand would read, is not used by this job: {shown}",
        f"`safelaunch init -- {by_hand} ...` writes it into a job file; `launcher_args: "
        f"{{{file.flag}: {path}}}` names it",
    )
