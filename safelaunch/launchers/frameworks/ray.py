"""Programs of Ray: one process, which starts its workers itself and shares cores and GPUs out.

verl and OpenRLHF run as `python -m MODULE`; `ray job submit -- ENTRYPOINT` hands a program to a
cluster that runs already, and follows its log there. Ray sets OMP_NUM_THREADS for each worker to
the cores that it got, but only where it is unset (ray 2.60, _private/utils.py): no share is set.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.launchers import Cluster, Command, CommandLine, JobKeys, Launch, common
from safelaunch.launchers.common import module_or_script
from safelaunch.model import PlanWarning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.model import Job

SUMMARY = "Ray programs: verl, OpenRLHF, or command: [job, submit, ...]; one process with workers"
TARGETS = ("script", "module", "command")
STARTS_RANKS = False
COUNT_REQUIRED = False
RUNS_PYTHON = True
SETS_THREADS = False
PROGRAMS = ("ray",)
TIMEOUT = "verl: `actor_rollout_ref.nccl_timeout` (seconds); OpenRLHF: no setting"
CLUSTER = Cluster(node_options=(), shared_folders=(), uses_ray=True)

# module that calls ray.init -> where
DRIVERS: Mapping[str, str] = MappingProxyType(
    {
        "verl.trainer.main_ppo": "verl 0.9.1, verl/trainer/main_ppo.py",
        "verl.trainer.main_generation": "volcengine/verl at 0d75188, not in 0.9.1",
        "verl.trainer.main_generation_server": "verl 0.9.1, verl/trainer/main_generation_server.py",
        "verl.trainer.main_eval": "verl 0.9.1, verl/trainer/main_eval.py",
        "verl.trainer.sft_trainer_ray": "verl 0.9.1, verl/trainer/sft_trainer_ray.py",
        "verl.experimental.one_step_off_policy.main_ppo": "verl 0.9.1, through run_ppo",
        "verl.experimental.fully_async_policy.fully_async_main": "verl 0.9.1, through run_ppo",
        "verl.experimental.transfer_queue.main_ppo": "volcengine/verl at b178a3c, not in 0.9.1",
        "recipe.dapo.main_dapo": "volcengine/verl at 00d60ad, recipe/dapo/main_dapo.py",
        "recipe.entropy.main_entropy": "volcengine/verl at 037862f, recipe/entropy/main_entropy.py",
        "recipe.fully_async_policy.fully_async_main": "volcengine/verl at 0459298, through run_ppo",
        "recipe.one_step_off_policy.main_ppo": "volcengine/verl at 0d75188, through run_ppo",
        "recipe.prime.main_prime": "volcengine/verl at 134276c, recipe/prime/main_prime.py",
        "recipe.spin.main_spin": "volcengine/verl at 0d75188, recipe/spin/main_spin.py",
        "recipe.sppo.main_sppo": "volcengine/verl at 0d75188, recipe/sppo/main_sppo.py",
        "openrlhf.cli.train_ppo_ray": "openrlhf 0.11.2, openrlhf/cli/train_ppo_ray.py",
    }
)
MODULES = tuple(DRIVERS)

_SUBMIT = ("job", "submit")
_VERL = ("verl.", "recipe.")
_RAY_CPUS = "ray_kwargs.ray_init.num_cpus"
_PYTHON = ("python", "python3")


def command(launch: Launch) -> Command:
    """Return `python -m MODULE ...`, or Ray's own command line for `command:`."""
    job = launch.job
    common.one_process(job)
    if job.launcher_args.words:
        where = job.origin("launcher_args")
        raise ConfigError("ray takes no `launcher_args`", where=where, hint="use `args:`")
    if not job.command:
        words = (job.interpreter.word, *module_or_script(job, "-m"), *job.args.words)
        return Command(argv=words, warnings=tuple(_verl_warnings(job)), single="main")
    if job.command[:2] != _SUBMIT:
        raise ConfigError(
            f"`ray {' '.join(job.command[:2])}` runs no job",
            where=job.origin("command"),
            hint="command: [job, submit, --, python, train.py], or `script:` or `module:`",
        )
    if job.ray_cluster:
        raise ConfigError(
            "`ray job submit` needs a Ray with a dashboard, that runs already",
            where=job.origin("ray_cluster"),
            hint="`module:` or `script:`: the program itself, which then runs on node 0",
        )
    argv = (job.interpreter.word, "-m", "ray.scripts.scripts", *job.command, *job.args.words)
    return Command(argv=argv, program=3, warnings=_submit_warnings(job), single="main")


def _verl_warnings(job: Job) -> Iterator[PlanWarning]:
    """Warn where verl's own settings do not fit the Ray that is brought up for it."""
    if not job.ray_cluster or not (job.module or "").startswith(_VERL):
        return
    pairs = (word.lstrip("+").partition("=") for word in job.args.words)
    settings = {name: value for name, _, value in pairs}
    where = str(job.origin("ray_cluster"))
    gpus = len(job.gpus) or (None if job.request is None else job.request.gpus_per_node)
    for name, default, count in (
        ("nnodes", "1", job.topology.nodes),
        ("n_gpus_per_node", "8", gpus),
    ):
        value = settings.get(f"trainer.{name}", default)
        if count is not None and value.isdigit() and value != str(count):
            message = f"verl counts trainer.{name}={value}, and the Ray of this job has {count}"
            yield PlanWarning("verl-nodes", message, where, f"args: [trainer.{name}={count}]")
    if settings.get(_RAY_CPUS, "null") != "null":
        message = f"{_RAY_CPUS}: Ray refuses a count of cores where it has an address"
        yield PlanWarning("verl-cpus", message, where, "leave it out")


def _submit_warnings(job: Job) -> tuple[PlanWarning, ...]:
    where = str(job.origin("command"))
    message = (
        "the program runs in the Ray cluster: variables of this plan, and a stop, do not reach it; "
        "`--runtime-env-json` and `ray job stop` do"
    )
    if "--no-wait" in job.command:
        message += "; with `--no-wait` this run ends as soon as the program is handed over"
    return (PlanWarning("ray-job", message, where),)


def job_keys(line: CommandLine) -> JobKeys | None:
    """Return the job of a driver, or of `ray job submit ... -- ENTRYPOINT`; None for the others."""
    words = line.words
    if line.module is not None:
        return JobKeys({"module": line.module} | ({"args": words} if words else {}))
    if words[:2] != _SUBMIT or "--" not in words[:-1]:
        return None
    end = words.index("--") + 1
    if words[end].rpartition("/")[2] in _PYTHON and words[end + 1 : end + 2] != ():
        end += 2 if words[end + 1] == "-m" else 1
    end += 1
    keys = {"command": words[:end], "args": words[end:]}
    return JobKeys({key: part for key, part in keys.items() if part})


def program(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the script or module, also that of a submitted line."""
    if "--" in job.command:
        return common.program_of_words(job.command[job.command.index("--") + 1 :])
    return common.program(job)


def imports(job: Job) -> dict[str, str]:
    """Return Ray, and the package of the module."""
    package = (job.module or "ray").partition(".")[0]
    names = ("ray", package) if package in ("verl", "openrlhf") else ("ray",)
    return {name: name for name in names}
