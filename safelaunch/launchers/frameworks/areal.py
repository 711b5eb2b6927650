"""AReaL. Its command line differs by version, so the job must say which.

0.2     python -m realhf.apps.quickstart EXPERIMENT --config YAML key=value
0.3     python -m areal.launcher.local SCRIPT --config YAML key=value
1       python SCRIPT --config YAML scheduler.type=local key=value
1-spmd  python -m areal.infra.launcher.local SCRIPT --config YAML key=value
"""

from __future__ import annotations

from safelaunch.errors import ConfigError
from safelaunch.launchers import Cluster, Command, Launch
from safelaunch.launchers.common import module_or_script
from safelaunch.model import EnvVar, Job, Origin, Word

SUMMARY = "AReaL: version 0.2 (quickstart), 0.3 (launcher.*), 1 (scheduler), 1-spmd"
TARGETS = ("script", "command")
VERSIONS = ("0.2", "0.3", "1", "1-spmd")
STARTS_RANKS = False
COUNT_REQUIRED = False
RUNS_PYTHON = True
SETS_THREADS = False
MODULES = ("areal.launcher", "areal.infra.launcher", "realhf.apps.quickstart")
TIMEOUT = "no setting: AReaL has its limit in code"
CLUSTER = Cluster(
    node_options=("cluster.n_nodes", "n_nodes"),
    # workers on all nodes meet in these folders (AReaL's installation guide, "shared storage")
    shared_folders=("fileroot", "cluster.fileroot", "exp_ctrl.fileroot",
                    "name_resolve.nfs_record_root", "cluster.name_resolve.nfs_record_root"),
    uses_ray=True,
)  # fmt: skip


_SCHEDULERS = ("local", "ray", "slurm")
_SPMD_MODULES = {"0.3": "areal.launcher", "1-spmd": "areal.infra.launcher"}


def command(launch: Launch) -> Command:
    """Return AReaL's command in the shape of the stated version."""
    job = launch.job
    scheduler = _scheduler(job)
    words: list[Word] = [job.interpreter.word]
    if job.version == "0.2":
        if not job.command:
            where, hint = job.origin("version"), "command: [ppo-math]"
            raise ConfigError("AReaL 0.2 runs an experiment", where=where, hint=hint)
        words += ["-m", "realhf.apps.quickstart", *job.command]
        settings = {"mode": scheduler}
    else:
        if job.script is None:
            where, hint = job.origin("command"), "give `script:`"
            raise ConfigError(f"AReaL {job.version} runs a script", where=where, hint=hint)
        if job.version in _SPMD_MODULES:
            words += ["-m", f"{_SPMD_MODULES[job.version]}.{scheduler}"]
        words += module_or_script(job, "-m")
        settings = {"scheduler.type": scheduler} if job.version == "1" else {}
    settings |= {option: value for option, (value, _) in topology_options(job).items()}
    stated = {word.lstrip("+").split("=", 1)[0] for word in _overrides(job)}
    words += _overrides(job)
    words += [f"{option}={value}" for option, value in settings.items() if option not in stated]
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
    where = job.origin("launcher_args")
    options = dict(job.launcher_args.options)
    values = options.pop("scheduler", ("local",))
    is_list = bool(job.launcher_args.words) and not job.launcher_args.is_mapping
    if options or is_list or isinstance(values, bool) or len(values) != 1:
        hint = "launcher_args: {scheduler: local}"
        raise ConfigError("areal takes one launcher argument", where=where, hint=hint)
    if values[0] not in _SCHEDULERS:
        hint = "one of " + ", ".join(_SCHEDULERS)
        raise ConfigError(f"unknown scheduler `{values[0]}`", where=where, hint=hint)
    return values[0]


def _overrides(job: Job) -> list[str]:
    """Return the arguments in Hydra's style: `config` stays an option, the others `key=value`."""
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


def topology_options(job: Job) -> dict[str, tuple[str, str]]:
    """Return nodes and GPUs in AReaL's own options, where the job gives them."""
    key = next((key for key in ("gpus", "processes") if key in job.origins), None)
    request_gpus = None if job.request is None else job.request.gpus_per_node
    gpus = len(job.gpus) or request_gpus or job.topology.processes
    if key is None or gpus is None:
        return {}
    prefix = "" if job.version == "0.2" else "cluster."
    return {
        f"{prefix}n_nodes": (str(job.topology.nodes), "nodes"),
        f"{prefix}n_gpus_per_node": (str(gpus), key),
    }


def program(job: Job) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return `areal VERSION SCHEDULER` and the script or experiment."""
    scheduler = dict(job.launcher_args.options).get("scheduler", ("local",))
    name = scheduler[0] if not isinstance(scheduler, bool) and scheduler else "local"
    return ("areal", job.version or "", name, *(job.command or (job.script or "",))), ()


def imports(job: Job) -> dict[str, str]:
    """Return the launcher's package; in version 1 the job's own script is the launcher."""
    module = {"0.2": "realhf", "0.3": "areal", "1-spmd": "areal"}.get(job.version or "")
    return {module: "areal"} if module else {}


def _required(job: Job) -> tuple[EnvVar, ...]:
    if any("vllm" in word for word in _overrides(job)):
        return ()
    origin = Origin("launcher areal")
    why = "AReaL with sglang: the weight-update group needs it off in trainer and server"
    source = "AReaL launcher sources"
    return tuple(
        EnvVar(name, "0", origin, why=why, source=source)
        for name in ("NCCL_CUMEM_ENABLE", "NCCL_NVLS_ENABLE")
    )
