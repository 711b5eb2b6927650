"""A plain Python program: one process, or one that starts its own."""

from __future__ import annotations

from safelaunch.launchers import Command, Launch
from safelaunch.launchers.target import module_or_script

SUMMARY = "python script.py or python -m module: one process"
TARGETS = ("script", "module")
RANKS = False
COUNT_REQUIRED = False
VERSIONS: tuple[str, ...] = ()


def command(launch: Launch) -> Command:
    """Return `python script.py ...`; `launcher_args` are the interpreter's own (-u, -X dev)."""
    job = launch.job
    program = module_or_script(job, "-m")
    words = (job.interpreter.word, *job.launcher_args.words, *program, *job.args.words)
    return Command(argv=words)
