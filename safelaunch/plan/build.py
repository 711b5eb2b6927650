"""Resolved -> Plan, and `bind`. Pure: no process, no network, no clock, no os.environ."""

# ruff: noqa: PLC0415 - prefixes and direct starts are imported only for jobs that have them

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch import engines, environ
from safelaunch.config.paths import project_on_host
from safelaunch.config.supervision import CHECKPOINT, RESUME_EXAMPLE
from safelaunch.errors import ConfigError
from safelaunch.launchers import Command, Launch
from safelaunch.launchers import load as load_launcher
from safelaunch.model import (
    BUILT_IN,
    DirectStart,
    EnvVar,
    Facts,
    ManualStart,
    NodePlan,
    Origin,
    Part,
    Plan,
    PlanWarning,
    Ready,
    Service,
    Slot,
    Template,
    bind_word,
    join_path,
    join_words,
    parent_path,
    text,
)
from safelaunch.plan import direct, evidence, gates
from safelaunch.plan import warnings as plan_warnings
from safelaunch.plan.ending import for_host
from safelaunch.plan.fingerprint import fingerprint
from safelaunch.plan.members.words import (
    late_values,
    map_words,
    with_late_values,
    with_step_outputs,
)
from safelaunch.runtime.start.accelerators import ACCELERATORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from safelaunch.config.resolve import Resolved, ResolvedService
    from safelaunch.model import Container, Gate, Host, Interpreter, Job, Placed, Profile, Word
    from safelaunch.runtime.start.accelerators import Accelerator

_DEBUG = tuple(
    EnvVar(name, value, Origin("--debug"), why=why, cost=cost)
    for name, value, why, cost in (
        ("NCCL_DEBUG", "INFO", "shows transports, versions and the failing call", "a longer log"),
        (
            "TORCH_DISTRIBUTED_DEBUG",
            "DETAIL",
            "checks that all ranks run the same collectives",
            "every collective is verified first: clearly slower",
        ),
        (
            "CUDA_LAUNCH_BLOCKING",
            "1",
            "an error is reported at the kernel that made it",
            "no overlap of kernels: slow; breaks CUDA graph capture",
        ),
    )
)


def make_plan(resolved: Resolved) -> Plan:
    """Return the plan of a resolved job. Raises ConfigError where it does not fit its launcher."""
    job = resolved.job
    launcher = load_launcher(job.launcher)
    if job.version is not None and not launcher.VERSIONS:
        where = job.origin("version")
        raise ConfigError(f"launcher `{job.launcher}` takes no `version`", where=where)
    warnings: list[PlanWarning] = [*plan_warnings.unexpanded(job, resolved.project)]
    if resolved.flags.remote:
        warnings += plan_warnings.windows_paths(job)
    notes: list[str] = []
    nodes: list[NodePlan] = []
    hosts = resolved.hosts[: len(resolved.hosts) - resolved.service_hosts]
    if job.engine is not None and engines.load(job.engine).ONE_SCRIPT:
        hosts = hosts[:1]
    for rank, host in enumerate(hosts):
        node, node_warnings, node_notes = _node(resolved, host, rank)
        nodes.append(node)
        warnings += [w for w in node_warnings if w not in warnings]
        notes += [n for n in node_notes if n not in notes]
    warnings += plan_warnings.differing_variables(nodes)
    if job.engine is not None:
        engine = engines.load(job.engine)
        kind = resolved.profile.accelerator if resolved.profile else "cuda"
        warnings += engine.warnings(job, nodes[0], kind)
        notes += engine.notes(job)
    notes += plan_warnings.unused_blocks(job, resolved.hosts)
    nodes, all_notes = direct.alike(nodes)
    notes += all_notes
    services = tuple(_service(service, resolved) for service in resolved.services)
    for number in range(len(hosts), len(hosts) + resolved.service_hosts):
        nodes.append(_node_without_ranks(services, number, nodes[0]))
    profiles = [profile for host in hosts if (profile := resolved.profile_of(host))]
    plan = Plan(
        name=job.name,
        launcher=job.launcher,
        profile=", ".join(dict.fromkeys(profile.name for profile in profiles)) or None,
        job_file=resolved.job_file,
        log=job.log,
        topology=job.topology,
        ranks_log=launcher.STARTS_RANKS and job.topology.world_size != 1,
        nodes=tuple(nodes),
        warnings=tuple(warnings),
        notes=tuple(notes),
        supervision=for_host(job, resolved.hosts[0]),
        fingerprint=fingerprint(job, job.fingerprint),
        manual_node=_manual_node(job, nodes[0]) if job.starts_one_node else None,
        engine=job.request,
        services=services,
        service_nodes=resolved.service_hosts,
        queue=job.queue and replace(job.queue, kind=_kind(resolved)),
        fan_out=resolved.fan_out,
    )
    if plan.fan_out is not None:
        from safelaunch.plan.members.fan_out import with_cards

        plan = with_late_values(with_cards(plan), "shard", "matrix")
    return _with_services(plan, resolved) if plan.services else plan


def _node_without_ranks(services: Sequence[Service], number: int, first: NodePlan) -> NodePlan:
    """Return a node that runs services alone: in their folder, it waits for the end of the ranks.

    `first` is node 0 of the job.
    """
    own = next(service.plan.nodes[0] for service in services if service.node == number)
    argv = ("sleep", "infinity")
    return NodePlan(
        host=own.host,
        node_rank=number,
        cwd=own.cwd,
        argv=argv,
        program=0,
        env={},
        unset=own.unset,
        keep=None,
        setup=(),
        secrets=(),
        interpreter=own.interpreter,
        processes=0,
        single="shell",
        resume_argv=None if first.resume_argv is None else argv,
        fresh_argv=None if first.fresh_argv is None else argv,
    )


def _with_services(plan: Plan, resolved: Resolved) -> Plan:
    """Return a plan with the late values of services, which it reaches without a proxy."""
    if len(resolved.hosts) > 1:
        hosts = [f"{{services.{own.resolved.job.name}.host}}" for own in resolved.services]
        nodes = (replace(node, direct=(*node.direct, *hosts)) for node in plan.nodes)
        plan = replace(plan, nodes=tuple(nodes))
    return with_late_values(plan, "services")


def _service(service: ResolvedService, resolved: Resolved) -> Service:
    """Return a service of a job with its plan."""
    keys = service.keys
    return Service(
        plan=_with_services(make_plan(service.resolved), resolved),
        ready=keys.get("ready", Ready()),
        needs=tuple(keys.get("after", ())),
        port=keys.get("port"),
        on_exit=keys.get("on_exit", "fail"),
        node=service.node,
    )


def _kind(resolved: Resolved) -> str:
    return resolved.profile.accelerator if resolved.profile else "cuda"


def _manual_node(job: Job, node: NodePlan) -> ManualStart:
    """Return which of several nodes is started by hand, and where they meet. Raises ConfigError."""
    launcher, topology = load_launcher(job.launcher), job.topology
    words = [*node.argv, *(var.value for var in node.env.values())]
    slots = {part for word in words if isinstance(word, Template) for part in word.parts}
    if slots & {Slot.MASTER_ADDR, Slot.PORT}:
        raise ConfigError(
            "a node that is started by hand must be told where node 0 is",
            where=job.origin("node_rank"),
            hint=launcher.NODE_0,
        )
    meeting = launcher.rendezvous(job, node.env)
    address = next((address for address, _ in meeting.addresses), None)
    port = next((fixed.port for fixed in meeting.ports), None)
    return ManualStart(topology.node_rank, topology.nodes, address, port)


def resume(
    plan: Plan, run_id: str | None = None, expected: Mapping[str, str] | None = None
) -> Plan:
    """Return the plan of a start that continues from a checkpoint, with `resume_args`.

    `run_id` names the run that it continues, `expected` is that run's fingerprint.
    """
    nodes = []
    for node in plan.nodes:
        if node.resume_argv is None:
            raise ConfigError(
                f"`{plan.name}` does not say how it resumes",
                where=plan.job_file or None,
                hint=f"{RESUME_EXAMPLE}, with the option by which your program resumes",
            )
        nodes.append(replace(node, argv=node.resume_argv, fresh_argv=node.argv))
    return replace(plan, nodes=tuple(nodes), resumes=run_id, expected=dict(expected or {}))


def move_project(plan: Plan, resolved: Resolved, folders: Sequence[str]) -> Plan:
    """Return the plan with the project in other folders of its hosts; all else stays as it is."""
    if plan.engine is not None:
        folders = [folders[0]] * len(resolved.hosts)  # its nodes share the login node's
    moved = make_plan(_in_folders(resolved, folders))
    plans = (plan, *(service.plan for service in plan.services))
    late = (late for own in plans for late in late_values(own))
    if any(word.value.startswith("steps.") for word in late):
        moved = with_step_outputs(moved)  # as step_plan does
    if any(node.fresh_argv is not None for node in plan.nodes):
        moved = resume(moved, plan.resumes, plan.expected)
    return replace(plan, nodes=moved.nodes, services=moved.services)


def _in_folders(resolved: Resolved, folders: Sequence[str]) -> Resolved:
    """Return a resolved job, and its services, with these folders for the project of its hosts."""
    pairs = zip(resolved.hosts, folders, strict=True)
    return resolved._replace(
        hosts=tuple(replace(host, workdir=folder) for host, folder in pairs),
        services=tuple(
            service._replace(resolved=_in_folders(service.resolved, [folders[service.node]]))
            for service in resolved.services
        ),
    )


def resumes_from_checkpoint(plan: Plan) -> bool:
    """Whether the first attempt of a plan needs the path of a checkpoint."""
    words = (word for node in plan.nodes for word in node.argv if isinstance(word, Template))
    return any(Slot.CHECKPOINT in word.parts for word in words)


def without_checkpoint(plan: Plan) -> Plan:
    """Return the plan of a resume for which there is no whole checkpoint: without `resume_args`."""
    return replace(
        plan, nodes=tuple(replace(node, argv=node.fresh_argv or node.argv) for node in plan.nodes)
    )


def bind(plan: Plan, facts: Facts) -> Plan:
    """Return the plan with its slots filled from the facts; nothing else changes."""
    nodes = []
    for node in plan.nodes:
        interpreter = _bind_interpreter(node.interpreter, facts)
        if interpreter.path is None and Slot.PYTHON in facts:
            prefix = facts.get(Slot.PREFIX, interpreter.prefix)
            interpreter = replace(interpreter, path=facts[Slot.PYTHON], prefix=prefix)
        bound = replace(
            map_words(node, lambda word: bind_word(word, facts)),
            cwd=bind_word(node.cwd, facts),
            interpreter=interpreter,
            assets=_bind_assets(node.assets, facts),
            container=_bind_container(node.container, facts),
        )
        nodes.append(bound)
    fingerprint = {name: bind_word(word, facts) for name, word in plan.fingerprint.items()}
    return replace(plan, nodes=tuple(nodes), fingerprint=fingerprint)


def _bind_container(container: Container | None, facts: Facts) -> Container | None:
    if container is None:
        return None
    from safelaunch.plan.container import bind_mounts

    return bind_mounts(container, facts)


def bind_job(job: Job, facts: Facts) -> Job:
    """Return the job with the slots of its paths filled from the facts."""
    return replace(
        job,
        workdir=bind_word(job.workdir, facts),
        pythonpath=tuple(bind_word(path, facts) for path in job.pythonpath),
        interpreter=_bind_interpreter(job.interpreter, facts),
        assets=_bind_assets(job.assets, facts),
        container=_bind_container(job.container, facts),
    )


def _bind_interpreter(interpreter: Interpreter, facts: Facts) -> Interpreter:
    path, prefix = interpreter.path, interpreter.prefix
    return replace(
        interpreter,
        path=None if path is None else bind_word(path, facts),
        prefix=None if prefix is None else bind_word(prefix, facts),
    )


def _bind_assets(assets: tuple[Placed, ...], facts: Facts) -> tuple[Placed, ...]:
    return tuple(replace(asset, place=bind_word(asset.place, facts)) for asset in assets)


def _with_checkpoint(word: Word) -> Word:
    """Return a word with a slot for each `{checkpoint}`."""
    parts: list[Part] = []
    for part in word.parts if isinstance(word, Template) else (word,):
        pieces = CHECKPOINT.split(part) if isinstance(part, str) else [part]
        for piece in pieces:
            parts += (piece, Slot.CHECKPOINT)
        parts.pop()
    return bind_word(text(*parts), {})


def _place_assets(word: Word, places: Mapping[str, Word]) -> Word:
    """Return a word with each printed path of an asset replaced by its path on the host."""
    for printed, place in places.items():
        parts = word.parts if isinstance(word, Template) else (word,)
        if any(isinstance(part, str) and printed in part for part in parts):
            pieces = [
                join_words(place, part.split(printed)) if isinstance(part, str) else text(part)
                for part in parts
            ]
            word = join_words("", pieces)
    return word


def _repeated(job: Job) -> list[str]:
    """Return the variables of a job that its launcher sets for each rank to the same value."""
    values = environ.rank_values(job.topology)
    values.pop("NODE_RANK", None)  # torchrun does not set it, and a program may read it
    return [var.name for var in job.env if var.value and values.get(var.name) == var.value]


def _node(
    resolved: Resolved, host: Host, rank: int
) -> tuple[NodePlan, list[PlanWarning], list[str]]:
    job, profile = _on_host(resolved, host), resolved.profile_of(host)
    block = _container_block(job, host)
    number = job.topology.node_rank if job.starts_one_node else rank
    if resolved.fan_out is not None:
        number = 0  # each part runs on one host
    kind = profile.accelerator if profile else "cuda"
    serves_all = job.engine is not None and engines.load(job.engine).ONE_SCRIPT
    launch, accelerator = Launch(job, kind, number or 0, serves_all), ACCELERATORS[kind]
    launcher = load_launcher(job.launcher)
    command = _command(launch, resolved.job)
    # a program without ranks sees what the job sets, as it would by hand
    repeated = _repeated(job) if launcher.STARTS_RANKS and command.single is None else []
    job = replace(job, env=tuple(var for var in job.env if var.name not in repeated))
    selection = _select(resolved, profile, host) if profile else None
    required, forced = _required(job, command)
    env = environ.merge(
        (
            _built_in(job, command, resolved, accelerator),
            selection.env if selection else (),
            _host_env(host, resolved, accelerator),
            command.env,
            _gpus(job, accelerator),
            job.env,
            _secrets(job),
            selection.ladder if selection else (),
            _DEBUG if resolved.flags.debug else (),
            required,
        )
    )
    warnings = [*command.warnings, *forced]
    notes: list[str] = []
    if repeated:
        notes.append(f"left to {job.launcher}, which sets the same: {', '.join(repeated)}")
    if selection is not None and profile is not None:
        warnings += plan_warnings.profile_variables(profile, selection, env, host)
    warnings += plan_warnings.job_variables(job, profile, selection, env, host)
    rungs = gates.rungs(selection, env, required) if selection and selection.rungs else ()
    if rungs:
        notes.append(_note_of_rungs(rungs))
    _check_preload(job)
    # the host's own lines are for what is installed there, not in the image
    setup = (*host.setup, *job.setup) if block is None else job.setup
    ranks = _direct_start(launch, command, env, setup, notes) if job.start == "direct" else None
    node = NodePlan(
        host=_node_name(job, host, rank),
        node_rank=rank,
        cwd=job.workdir,
        argv=command.argv,
        program=command.program,
        env=env,
        unset=environ.SCRUBBED,
        # what the image sets is the job's own
        keep=_inherited_names(job, accelerator) if block is None else None,
        setup=setup,
        secrets=tuple(name for name in job.env_from if env[name].computed),
        interpreter=job.interpreter,
        # of a Ray the one program counts, which has all cores
        processes=1 if launcher.PLACES_RANKS or job.ray_cluster else job.topology.processes,
        direct=_direct(job, resolved.hosts),
        files=command.files,
        single=command.single,
        resume_argv=_resume_argv(launch._replace(job=job), resolved.job),
        launcher_env=launcher.environment(job),
        rungs=rungs,
        assets=job.assets,
        prefix=len(job.prefix),
        open_gates=_open_gates(selection, env, _runs_python(job, command)),
        evidence=evidence.variables(job, command, kind, env, starts_ranks=launcher.STARTS_RANKS),
        ranks=ranks,
        ray_cluster=command.ray_cluster,
    )
    if block is not None:
        node = _in_container(node, block, job, resolved, host)
    if resolved.flags.remote and job.assets:
        node = _with_assets_of_host(node, resolved.job, job)
    return node, warnings, notes


def _gpus(job: Job, accelerator: Accelerator) -> Sequence[EnvVar]:
    """Return the variable that shows a job the GPUs that it names."""
    value = ",".join(job.gpus)
    if job.queue is not None:
        return _cards(job.origin("queue"), accelerator)
    return [EnvVar(accelerator.devices, value, job.origin("gpus"))] if value else []


def _cards(origin: Origin, accelerator: Accelerator) -> Sequence[EnvVar]:
    """Return the variables that show a job the cards which the queue gives it."""
    why = "the cards that the queue of the machine gives it"
    variables = [EnvVar(accelerator.devices, text(Slot.CARDS), origin, why=why)]
    if accelerator.tool == "nvidia-smi":
        why = "the queue numbers the cards as nvidia-smi does"
        variables.append(EnvVar("CUDA_DEVICE_ORDER", "PCI_BUS_ID", origin, why=why))
    return variables


def _check_preload(job: Job) -> None:
    if job.preload and job.start != "direct":
        raise ConfigError(
            "`preload` without `start: direct`: only there safelaunch itself starts the ranks",
            where=job.origin("preload"),
            hint="add `start: direct`, or leave `preload` out",
        )


def _note_of_rungs(rungs: Sequence[Sequence[EnvVar]]) -> str:
    later = ", ".join(var.name for rung in rungs for var in rung)
    return (
        f"started below the ladder (`recovery: {{ladder: true}}`): {later} come one step at a "
        "time, each with a restart after an illegal memory access"
    )


def _container_block(job: Job, host: Host) -> Container | None:
    if job.container is None and host.container is None:
        return None
    from safelaunch.plan.container import block_of

    return block_of(job, host)


def _in_container(
    node: NodePlan, block: Container, job: Job, resolved: Resolved, host: Host
) -> NodePlan:
    """Return a node that runs in a container, with what that gets of the machine."""
    from safelaunch.plan.container import of_node

    project: Word = resolved.planned_project
    if resolved.flags.remote:
        project = project_on_host(host, resolved.project)
    names = () if isinstance(job.inherit, str) else job.inherit
    return replace(
        node,
        container=of_node(block, job, project, resolved.profile_of(host)),
        passed=(*names, *node.launcher_env),
    )


def _direct_start(
    launch: Launch,
    command: Command,
    env: Mapping[str, EnvVar],
    setup: tuple[str, ...],
    notes: list[str],
) -> DirectStart | None:
    """Return how ranks are started without the launcher; where they are not, note the reason."""
    from safelaunch.launchers.direct import environment_reason

    job = launch.job
    answer: DirectStart | str = load_launcher(job.launcher).direct_start(launch)
    if command.single is not None:
        answer = f"{job.launcher} starts one process here, which is no rank"
    elif launch.serves_all:
        answer = "safelaunch is not in the containers"
    elif job.prefix and _brings_python(job):
        answer = f"`{job.prefix[0]}` chooses the Python of the ranks"
    elif job.prefix and not _keeps_process(job):
        # it may change the variables of the ranks, which the launcher would set behind it
        answer = f"`{job.prefix[0]}` stands before the launcher"
    elif isinstance(answer, DirectStart):
        answer = environment_reason(job, env, setup) or answer
    if isinstance(answer, str):
        notes.append(f"{direct.BY_LAUNCHER}: {answer}")
        return None
    return answer


def _keeps_process(job: Job) -> bool:
    from safelaunch.plan.launch_line.wrappers import keeps_process

    return keeps_process(job.prefix)


def _brings_python(job: Job) -> bool:
    from safelaunch.plan.launch_line.wrappers import finds_python

    return finds_python(job.prefix)


def _inherited_names(job: Job, accelerator: Accelerator) -> tuple[str, ...] | None:
    """Return the names of `inherit`; None for all."""
    if job.inherit == "all":
        return None
    names = () if job.inherit == "none" else tuple(job.inherit)
    devices = engines.load(job.engine).DEVICES if job.engine is not None else ()
    return tuple(dict.fromkeys((*names, *devices, accelerator.devices))) if devices else names


def _node_name(job: Job, host: Host, rank: int) -> str:
    return host.name if job.engine is None else engines.node_name(job.engine, rank)


def _resume_argv(launch: Launch, own: Job) -> tuple[Word, ...] | None:
    """Return the command of a restart with `resume_args`; None where the job has none."""
    job = launch.job
    if job.resumed is None:
        return None
    words = _command(launch._replace(job=replace(job, args=job.resumed)), own).argv
    if job.supervision.recovery is not None and job.supervision.recovery.checkpoint:
        words = tuple(_with_checkpoint(word) for word in words)
    return words


def _with_assets_of_host(node: NodePlan, own: Job, on_host: Job) -> NodePlan:
    """Return the node with the paths of assets as they are there; `own` has those of here."""
    pairs = zip(own.assets, on_host.assets, strict=True)
    places = {str(asset.place): moved.place for asset, moved in pairs}
    # the longest first: one may begin another
    names = sorted((name for name in places if name != places[name]), key=len, reverse=True)
    places = {name: places[name] for name in names}
    return map_words(node, lambda word: _place_assets(word, places))


def _command(launch: Launch, own: Job) -> Command:
    """Return the command of a node behind the job's prefix; `own` is the job without its host's.

    A prefix such as `uv run` brings the Python along, unless the job itself names one.
    """
    job, launcher = launch.job, load_launcher(launch.job.launcher)
    if not job.prefix:
        return _with_ray(_with_python_options(launcher.command(launch), job), launch)
    from safelaunch.plan.launch_line.wrappers import keeps_process

    if _brings_python(job) and own.interpreter.path is None:
        python = replace(job.interpreter, path="python")
        launch = launch._replace(job=replace(job, interpreter=python))
    command = _with_python_options(launcher.command(launch), launch.job)
    single = command.single
    if single not in (None, "mpi") and not keeps_process(job.prefix):
        single = "shell"
    command = command._replace(
        argv=(*job.prefix, *command.argv),
        program=command.program + len(job.prefix),
        single=single,
    )
    return _with_ray(command, launch)


def _with_ray(command: Command, launch: Launch) -> Command:
    """Return a command behind the start of a Ray, for jobs that want one of their own."""
    if not launch.job.ray_cluster:
        return command
    from safelaunch.plan import ray_cluster

    return ray_cluster.command(launch, command)


def _with_python_options(command: Command, job: Job) -> Command:
    """Return a command with the options of its Python. Raises ConfigError."""
    options = job.python_options
    if not options:
        return command
    if command.argv[0] != job.interpreter.word:
        raise ConfigError(
            f"launcher `{job.launcher}` runs no Python here", where=job.origin("python_options")
        )
    return command._replace(
        argv=(command.argv[0], *options, *command.argv[1:]),
        program=command.program + len(options),
    )


def _open_gates(
    selection: gates.SelectedVariables | None, env: Mapping[str, EnvVar], runs_python: bool
) -> dict[str, tuple[Gate, ...]]:
    """Return the gates that a start decides: of variables that nothing else sets.

    The interpreter shows no versions of a program that is another one.
    """
    if selection is None or not runs_python:
        return {}
    origins = {var.name: var.origin for var in selection.env}
    return {
        name: open_gates
        for name, open_gates in selection.open_gates.items()
        if env[name].origin == origins[name]
    }


def _on_host(resolved: Resolved, host: Host) -> Job:
    """Return the job with the host's interpreter and workdir if the job names none.

    In a container it is the image's interpreter.
    """
    job = resolved.job
    own = None if _container_block(job, host) is not None else host.interpreter
    if job.interpreter.path is None and own is not None:
        job = replace(job, interpreter=own)
    if host.start is not None and "start" not in job.origins:
        job = replace(job, start=host.start)
    if resolved.flags.remote:  # the host's workdir is the project's place there
        place = project_on_host(host, resolved.project)
        if ":" in str(place) and "pythonpath" not in job.origins:
            raise ConfigError(
                f"the project folder {place} cannot be part of PYTHONPATH: a colon",
                where=host.name,
                hint="rename it, or set `pythonpath: []`",
            )
        return bind_job(job, {Slot.PROJECT: place})
    if host.workdir is not None and "workdir" not in job.origins:
        job = replace(job, workdir=host.workdir)
    return job


def _select(resolved: Resolved, profile: Profile, host: Host) -> gates.SelectedVariables:
    flags, job = resolved.flags, resolved.job
    gpus = len(job.gpus) or job.topology.processes
    if job.request is not None:
        gpus = job.request.gpus_per_node or gpus
    recovery = job.supervision.recovery
    return gates.select(
        profile,
        gates.DeclaredFacts(gpus, job.topology.nodes, host.facts),
        ladder=flags.ladder,
        workarounds=flags.workarounds,
        climb=recovery is not None and recovery.ladder,
    )


def _runs_python(job: Job, command: Command) -> bool:
    return command.argv[len(job.prefix)] == job.interpreter.word


def _built_in(
    job: Job, command: Command, resolved: Resolved, accelerator: Accelerator
) -> Iterable[EnvVar]:
    # by hand it is not known where the others are; parts do not speak with each other
    if len(resolved.hosts) > 1 and resolved.fan_out is None:
        why = "the card on the way to the others"
        yield from _interfaces(accelerator, text(Slot.INTERFACE), BUILT_IN, why)
    yield EnvVar(
        "PYTHONUNBUFFERED", "1", BUILT_IN, why="output reaches the log at once, also at a crash"
    )
    if job.pythonpath:
        yield EnvVar(
            "PYTHONPATH",
            join_words(":", job.pythonpath),
            job.origin("pythonpath"),
            why="ranks inherit the environment, not the shell's sys.path",
            prepend=True,
        )
    if _runs_python(job, command):
        yield from _interpreter_env(job.interpreter)
    if load_launcher(job.launcher).SETS_THREADS and not command.has_workers:
        count = job.topology.processes
        yield EnvVar(
            "OMP_NUM_THREADS",
            text(Slot.THREADS),
            BUILT_IN,
            why="torchrun would set 1, plain Python all cores of the host",
            computed=f"usable cores / {count or 'GPUs'}, unless it is set already",
            soft=True,
        )
    direct = join_words(",", _direct(job, resolved.hosts))
    for name in ("no_proxy", "NO_PROXY"):
        yield EnvVar(
            name,
            direct,
            BUILT_IN,
            why="the ranks talk to each other directly",
            computed=f"{direct} before the target's own, if a proxy variable is set",
        )


def _interpreter_env(interpreter: Interpreter) -> Iterable[EnvVar]:
    prefix, origin = interpreter.prefix_word, interpreter.origin
    path = interpreter.path
    bin_folder = join_path(prefix, "bin") if path is None else parent_path(path)
    yield EnvVar(
        "PATH", bin_folder, origin, why="the interpreter's own programs first", prepend=True
    )
    if interpreter.kind == "venv":
        yield EnvVar("VIRTUAL_ENV", prefix, origin)
        yield EnvVar("CONDA_PREFIX", None, origin)
    elif interpreter.kind == "conda":
        yield EnvVar("CONDA_PREFIX", prefix, origin)
        yield EnvVar("VIRTUAL_ENV", None, origin)
    else:
        computed = "the interpreter's prefix, if it is such an environment"
        yield EnvVar("VIRTUAL_ENV", None, origin, computed=computed)
        yield EnvVar("CONDA_PREFIX", None, origin, computed=computed)


def _direct(job: Job, hosts: tuple[Host, ...]) -> tuple[Word, ...]:
    """Return the names that ranks reach without a proxy: loopback and the job's nodes."""
    nodes: list[Word] = [host.name for host in hosts] if len(hosts) > 1 else []
    if job.engine is not None and nodes:
        nodes = [text(Slot.MASTER_ADDR)]  # of an engine's nodes only the first is known at a start
    return tuple(dict.fromkeys(["localhost", "127.0.0.1", "::1", *nodes]))


def _host_env(host: Host, resolved: Resolved, accelerator: Accelerator) -> Iterable[EnvVar]:
    if host.interface is not None and resolved.job.topology.nodes > 1:
        origin, why = Origin(f"host {host.name}"), "the host's interface"
        yield from _interfaces(accelerator, host.interface, origin, why)
    yield from host.env


def _interfaces(
    accelerator: Accelerator, interface: Word, origin: Origin, why: str
) -> Iterable[EnvVar]:
    # NCCL and HCCL take prefixes, so `=` asks for the exact name; gloo takes exact names only, and
    # without one it uses the address that the host name resolves to: 127.0.1.1 on Debian
    exact = f"={interface}" if isinstance(interface, str) else text("=", *interface.parts)
    yield EnvVar(accelerator.interface, exact, origin, why=why)
    yield EnvVar("GLOO_SOCKET_IFNAME", interface, origin, why=why)


def _secrets(job: Job) -> Iterable[EnvVar]:
    for name in job.env_from:
        how = "env_from: taken from your environment at the start"
        yield EnvVar(name, None, job.origin("env_from"), computed=how)


def _required(job: Job, command: Command) -> tuple[list[EnvVar], list[PlanWarning]]:
    """Return the launcher's requirements that apply, and warnings about conflicts with the job."""
    own = {var.name: var for var in (*job.env, *_secrets(job))}
    required, warnings = [], []
    for var in command.required:
        mine = own.get(var.name)
        conflicts = mine is not None and (mine.value != var.value or bool(mine.computed))
        if not conflicts or var.name not in job.force:
            required.append(var)
        if mine is None or not conflicts:
            continue
        setting = f"{var.name} of env_from" if mine.computed else f"{var.name}={mine.value}"
        needs = f"needs {var.value}" if var.value is not None else "must not have it"
        if var.name in job.force:
            message = f"{setting} is forced; {job.launcher} {needs}: {var.why}"
            warnings.append(PlanWarning("forced-requirement", message, str(mine.origin)))
        else:
            message = (
                f"{setting} is overridden: {job.launcher} {needs} "
                f"({var.why}); to insist: force: [{var.name}]"
            )
            warnings.append(PlanWarning("overridden-by-launcher", message, str(mine.origin)))
    return required, warnings
