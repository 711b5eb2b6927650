"""ms-swift: `swift sft`, `rlhf`, `rollout`, ... Its topology is environment, not flags.

`swift pt|sft|rlhf|infer` start torchrun themselves if, and only if, NPROC_PER_NODE or NNODES is
set (swift/cli/main.py, 3.0 to 4.6).
"""

from __future__ import annotations

from typing import NamedTuple

from safelaunch.errors import ConfigError
from safelaunch.launchers import Command, CommandLine, JobKeys, Launch, common, direct
from safelaunch.launchers.common import for_elastic
from safelaunch.launchers.frameworks import subcommands, torchrun_variables
from safelaunch.launchers.frameworks.torchrun_variables import states_processes
from safelaunch.model import (
    BUILT_IN,
    DirectStart,
    EnvVar,
    Gate,
    Job,
    Origin,
    Slot,
    Word,
    text,
)

SUMMARY = "ms-swift: command: [sft], [rlhf], [rollout] ...; processes become NPROC_PER_NODE"
TARGETS = ("command",)
STARTS_RANKS = True
COUNT_REQUIRED = False
RUNS_PYTHON = True
SETS_THREADS = True
PROGRAMS = ("swift",)
MODULES = ("swift.cli.main",)
TIMEOUT = "`--ddp_timeout` (seconds)"
READS = torchrun_variables.NAMES
HUB_SWITCH = "USE_HF"  # else models come from ModelScope's hub, with a cache of its own

# ms-swift's own default is 18,000,000 s (208 days): a hang would never end. transformers' default
# for the same option is 1800 s (TrainingArguments.ddp_timeout).
_DDP_TIMEOUT = "1800"
_SETTINGS = (".json", ".yaml", ".yml")  # as the first word, of all options (swift/cli/main.py)


class Program(NamedTuple):
    """A program of ms-swift and its subcommands."""

    name: str
    module: str
    training: tuple[str, ...]  # they take --ddp_timeout
    distributed: tuple[str, ...]  # torchrun runs them where NPROC_PER_NODE or NNODES is set
    single: tuple[str, ...] = ()  # one process in any case

    def subcommand(self, words: tuple[str, ...]) -> str | None:
        """Return the subcommand of a line; `web_ui` is `web-ui` too (swift/cli/main.py)."""
        name = words[0].replace("_", "-") if words else ""
        return name if name in (*self.distributed, *self.single) else None


SINGLE = ("deploy", "rollout", "eval", "export", "sample", "app", "web-ui", "merge-lora")
_TRAINING = ("pt", "sft", "rlhf")
SWIFT = Program(
    name="swift",
    module="swift.cli.main",
    training=_TRAINING,
    distributed=(*_TRAINING, "infer"),
    single=SINGLE,
)


rendezvous = torchrun_variables.rendezvous


def command(launch: Launch) -> Command:
    """Return `python -m swift.cli.main SUBCOMMAND ...` for one node."""
    return run(SWIFT, launch)


def direct_start(launch: Launch) -> DirectStart | str:
    """Return how the ranks of a node are started without swift and its torchrun, or why not.

    It runs the file of the subcommand's module, swift/cli/SUBCOMMAND.py (swift/cli/main.py of
    ms-swift 3.0, 3.4, 3.8, 4.0 and 4.6).
    """
    job = launch.job
    own = (*job.command, *job.args.words)
    if own[1:2] and own[1].endswith(_SETTINGS):
        return f"swift itself reads {own[1]}"
    if SWIFT.subcommand(job.command) not in SWIFT.distributed or not states_processes(job):
        return "swift starts one process here, which is no rank"
    meeting = direct.reason(job, None, {}, ()) or direct.rendezvous(job, {})
    if isinstance(meeting, str):
        return meeting
    return direct.start(
        launch,
        meeting,
        flags={},
        tested=(Gate("swift", ">=3.0,<4.7", BUILT_IN),),
        program=(text(Slot.PACKAGE, f"/cli/{job.command[0]}.py"),),
        replaced=3,  # -m, the module of swift, and the subcommand
        package="swift",
    )


def job_keys(line: CommandLine) -> JobKeys | None:
    """Return the job of `swift SUBCOMMAND ...`, and of `NPROC_PER_NODE=N swift ...`."""
    return read(SWIFT, line)


def program(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return `swift SUBCOMMAND`, and the words after it."""
    return common.program_of_words(("swift", *job.command))


def run(program: Program, launch: Launch) -> Command:
    """Return the command of one node for a program of ms-swift."""
    job = launch.job
    names = (*program.distributed, *program.single)
    sub = program.subcommand(job.command) or subcommands.check(job, names)
    subcommands.refuse_launcher_args(job)
    topology = _topology(program, launch, sub)
    own = (*job.command, *job.args.words)
    words: list[Word] = [job.interpreter.word, "-m", program.module]
    words += for_elastic(own) if topology else own
    # an option of the line would beat the one that a settings file may have
    has_settings = any(word.endswith(_SETTINGS) for word in own[1:2])
    if sub in program.training and not has_settings and not job.args.has("ddp_timeout"):
        words += ["--ddp_timeout", _DDP_TIMEOUT]
    return Command(
        argv=tuple(words),
        env=topology,
        required=_required(program, job, sub),
        single=None if topology else "child",  # swift.cli.main runs the subcommand's file
        # `ENV:` of a settings file may have NPROC_PER_NODE (4.3 and later)
        has_workers=sub in program.single or (has_settings and not topology),
    )


def read(program: Program, line: CommandLine) -> JobKeys | None:
    """Return the job of a line of a program of ms-swift."""
    sub = program.subcommand(line.words)
    if sub is None:
        return None
    is_single = sub in program.single
    keys = torchrun_variables.subcommand_keys if is_single else torchrun_variables.counted_keys
    return keys(line)


def _required(program: Program, job: Job, sub: str) -> tuple[EnvVar, ...]:
    """Return the variables that a single-process subcommand must not see, if the job sets them."""
    if sub not in program.single or not any(var.name == "NPROC_PER_NODE" for var in job.env):
        return ()
    why = "with it each copy takes the same port"
    origin = Origin(f"launcher {job.launcher}")
    return (EnvVar("NPROC_PER_NODE", None, origin, why=why, source="ms-swift issue 8398"),)


def _topology(program: Program, launch: Launch, sub: str) -> tuple[EnvVar, ...]:
    job = launch.job
    if sub in program.single:
        if job.topology.nodes > 1 or (states_processes(job) and job.topology.processes != 1):
            key = "processes" if "processes" in job.origins else "hosts"
            raise ConfigError(
                f"`{program.name} {sub}` is a single process",
                where=job.origin(key),
                hint=f"leave `{key}` out; with NPROC_PER_NODE its ports collide (ms-swift 8398)",
            )
        return ()
    if not states_processes(job):  # one process over all visible GPUs (device_map), the default
        return ()
    return torchrun_variables.topology(launch, "swift starts torchrun itself when this is set")


def imports(_job: Job) -> dict[str, str]:
    """Return ms-swift: the package `swift` is OpenStack's object store."""
    return {"swift": "ms-swift"}


def ranks_per_node(job: Job) -> int | None:
    """Return the processes that swift lets torchrun start; without a count it is one process."""
    variable = next((var for var in job.env if var.name == "NPROC_PER_NODE"), None)
    if variable is not None and variable.value is not None:
        value = variable.value
        return int(value) if isinstance(value, str) and value.isdecimal() else None
    return job.topology.processes if states_processes(job) else 1


def binds_gpus(job: Job) -> bool:
    """Whether ranks take the GPU of their local rank: a single process spreads over all GPUs."""
    return "processes" in job.origins
