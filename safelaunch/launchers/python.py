"""A plain Python program: one process, or one that starts its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.launchers import Command, Launch
from safelaunch.launchers.common import module_or_script, one_process

if TYPE_CHECKING:
    from safelaunch.model import Job

SUMMARY = "python script.py or python -m module: one process"
TARGETS = ("script", "module")
STARTS_RANKS = False
COUNT_REQUIRED = False
RUNS_PYTHON = True
SETS_THREADS = False  # a program that starts ranks itself divides the cores among them


_SCRIPT = "script"
VERSIONS = (_SCRIPT,)
_VALUED = ("-X", "-W", "--check-hash-based-pycs")


def command(launch: Launch) -> Command:
    """Return `python script.py ...`; `launcher_args` are the interpreter's own (-u, -X dev).

    With `version: script` the job's prefix runs the script: `uv run script.py`.
    """
    job = launch.job
    one_process(job)
    _check_options(job)
    if job.version is not None:
        _check_version(job)
        return Command(argv=(job.script or "", *job.args.words), program=0, single="main")
    program = module_or_script(job, "-m")
    words = (job.interpreter.word, *job.launcher_args.words, *program, *job.args.words)
    return Command(argv=words, single="main")


def _check_version(job: Job) -> None:
    if job.version != _SCRIPT:
        raise ConfigError(
            f"python has no version `{job.version}`",
            where=job.origin("version"),
            hint="`version: script` is for a prefix that runs the script; `python:` names another",
        )
    if not job.prefix or job.script is None or job.launcher_args.words:
        raise ConfigError(
            "`version: script` needs `prefix` and `script`, and no `launcher_args`",
            where=job.origin("version"),
            hint="prefix: [uv, run]",
        )


def _check_options(job: Job) -> None:
    """Refuse words that Python would take for the program, or that are no options of it."""
    where = job.origin("launcher_args")
    if job.launcher_args.is_mapping and job.launcher_args.words:
        raise ConfigError(
            "the interpreter's options are a list", where=where, hint="launcher_args: [-u, -X, dev]"
        )
    before = ""
    for word in job.launcher_args.words:
        if before not in _VALUED and (not word.startswith("-") or word[:2] in ("-m", "-c", "-")):
            raise ConfigError(f"`{word}` is no option of the interpreter", where=where)
        before = "" if before in _VALUED else word
    if before in _VALUED:
        raise ConfigError(f"`{before}` has no value", where=where)
