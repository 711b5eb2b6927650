"""AReaL. Its command line differs by version, so the job must say which.

0.2     python -m realhf.apps.quickstart EXPERIMENT --config YAML key=value
0.3     python -m areal.launcher.local SCRIPT --config YAML key=value
1       python SCRIPT --config YAML scheduler.type=local key=value
1-spmd  python -m areal.infra.launcher.local SCRIPT --config YAML key=value
"""

from __future__ import annotations

from safelaunch.errors import ConfigError
from safelaunch.launchers import Command, Launch, from_launcher
from safelaunch.launchers.common import module_or_script
from safelaunch.model import EnvVar, Job, Word

SUMMARY = "AReaL: version 0.2 (quickstart), 0.3 (launcher.*), 1 (scheduler), 1-spmd"
TARGETS = ("script", "command")
RANKS = False
COUNT_REQUIRED = False
VERSIONS = ("0.2", "0.3", "1", "1-spmd")

_SCHEDULERS = ("local", "ray", "slurm")
_MODULES = {"0.3": "areal.launcher", "1-spmd": "areal.infra.launcher"}


def command(launch: Launch) -> Command:
    """Return AReaL's command in the shape of the stated version."""
    job = launch.job
    scheduler = _scheduler(job)
    words: list[Word] = [job.interpreter.word]
    if job.version == "0.2":
        if not job.command:
            raise ConfigError(
                "AReaL 0.2 runs an experiment",
                where=job.origin("version"),
                hint="command: [ppo-math]",
            )
        words += ["-m", "realhf.apps.quickstart", *job.command]
        topology = {"mode": scheduler, "n_nodes": None, "n_gpus_per_node": None}
    else:
        if job.script is None:
            raise ConfigError(
                f"AReaL {job.version} runs a script",
                where=job.origin("command"),
                hint="give `script:`",
            )
        if job.version in _MODULES:
            words += ["-m", f"{_MODULES[job.version]}.{scheduler}"]
        words += module_or_script(job, "-m")
        topology = {"cluster.n_nodes": None, "cluster.n_gpus_per_node": None}
        if job.version == "1":
            topology = {"scheduler.type": scheduler, **topology}
    words += [*_overrides(job), *_topology(job, topology)]
    # 1.x: the script is the controller. The others start torchrun, whose ranks have RANK: a record
    # of the launcher as rank 0 would take the place of the trainer's.
    single = "main" if job.version == "1" else None
    return Command(argv=tuple(words), required=_required(job), single=single)


def _scheduler(job: Job) -> str:
    if job.version not in VERSIONS:
        what = "which AReaL?" if job.version is None else f"AReaL `{job.version}` is not known"
        where = job.origin("launcher" if job.version is None else "version")
        hint = "its command lines differ: `version:` one of " + ", ".join(VERSIONS)
        raise ConfigError(what, where=where, hint=hint)
    given = dict(job.launcher_args.options)
    said = given.pop("scheduler", ("local",))
    if (
        given
        or isinstance(said, bool)
        or len(said) != 1
        or (job.launcher_args.words and not job.launcher_args.is_mapping)
    ):
        raise ConfigError(
            "areal takes one launcher argument",
            where=job.origin("launcher_args"),
            hint="launcher_args: {scheduler: local}",
        )
    scheduler = said[0]
    if scheduler not in _SCHEDULERS:
        raise ConfigError(
            f"unknown scheduler `{scheduler}`",
            where=job.origin("launcher_args"),
            hint="one of " + ", ".join(_SCHEDULERS),
        )
    return scheduler


def _overrides(job: Job) -> list[str]:
    """Hydra style: `config` stays an option, everything else becomes `key=value`."""
    if not job.args.is_mapping:
        return list(job.args.words)
    words = []
    for key, values in job.args.options:
        if isinstance(values, bool):
            words.append(f"{key}={'true' if values else 'false'}")
        elif key == "config":
            words += ["--config", *values]
        elif len(values) == 1:
            words.append(f"{key}={values[0]}")
        else:
            words.append(f"{key}=[{','.join(values)}]")
    return words


def _topology(job: Job, keys: dict[str, str | None]) -> list[str]:
    """State nodes, GPUs and scheduler in AReaL's own keys, where the job gives them."""
    said = {word.lstrip("+").split("=", 1)[0] for word in _overrides(job)}
    words = []
    for key, value in keys.items():
        if key in said:
            continue
        if value is not None:
            words.append(f"{key}={value}")
        elif "processes" in job.origins or "gpus" in job.origins:
            count = job.topology.nodes
            if key.endswith("n_gpus_per_node"):
                count = len(job.gpus) or job.topology.processes or 1
            words.append(f"{key}={count}")
    return words


def _required(job: Job) -> tuple[EnvVar, ...]:
    if any("vllm" in word for word in _overrides(job)):
        return ()
    origin = from_launcher("areal")
    why = "AReaL with sglang: the weight-update group needs it off in trainer and server"
    source = "AReaL launcher sources"
    return tuple(
        EnvVar(name, "0", origin, why=why, source=source)
        for name in ("NCCL_CUMEM_ENABLE", "NCCL_NVLS_ENABLE")
    )
