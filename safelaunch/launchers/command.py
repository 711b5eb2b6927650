"""Any command, unchanged."""

from __future__ import annotations

from safelaunch.errors import ConfigError
from safelaunch.launchers import Command, Launch
from safelaunch.launchers.common import one_process

SUMMARY = "any command as a list of words, run as it stands"
TARGETS = ("command",)
STARTS_RANKS = False
COUNT_REQUIRED = False
RUNS_PYTHON = False
SETS_THREADS = False


def command(launch: Launch) -> Command:
    """Return the words of `command:`, followed by `args:`."""
    job = launch.job
    one_process(job)
    if not job.command or not job.command[0]:
        raise ConfigError("an empty command", where=job.origin("command"))
    if job.launcher_args.words:
        raise ConfigError("`command` takes no `launcher_args`", where=job.origin("launcher_args"))
    return Command(argv=(*job.command, *job.args.words), single="shell")
