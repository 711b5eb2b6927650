"""Resolved -> Plan, and `bind`. Pure: no process, no network, no clock, no os.environ."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch import environ
from safelaunch.config.paths import project_on_host
from safelaunch.errors import ConfigError
from safelaunch.launchers import Command, Launch
from safelaunch.launchers import load as load_launcher
from safelaunch.model import (
    BUILT_IN,
    EnvVar,
    Facts,
    NodePlan,
    Origin,
    Plan,
    PlanWarning,
    Slot,
    Template,
    bind_word,
    join_path,
    join_words,
    parent_path,
    text,
)
from safelaunch.plan import gates
from safelaunch.plan import warnings as plan_warnings
from safelaunch.plan.fingerprint import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from safelaunch.config.resolve import Resolved
    from safelaunch.model import Host, Interpreter, Job, Placed, Profile, Word

_DEBUG = (
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


def make_plan(resolved: Resolved) -> Plan:
    """Return the plan of a resolved job. Raises ConfigError where it does not fit its launcher."""
    job = resolved.job
    launcher = load_launcher(job.launcher)
    if job.version is not None and not launcher.VERSIONS:
        raise ConfigError(
            f"launcher `{job.launcher}` takes no `version`", where=job.origin("version")
        )
    warnings: list[PlanWarning] = [*plan_warnings.unexpanded(job)]
    if resolved.flags.remote:
        warnings += plan_warnings.of_the_laptop(job)
    found = [resolved.profile_of(host) for host in resolved.hosts]
    names = dict.fromkeys(profile.name for profile in found if profile is not None)
    notes: list[str] = []
    nodes = []
    for rank, host in enumerate(resolved.hosts):
        node, said, noted = _node(resolved, host, rank)
        nodes.append(node)
        warnings += [w for w in said if w not in warnings]
        notes += [n for n in noted if n not in notes]
    warnings += plan_warnings.of_nodes(nodes)
    return Plan(
        name=job.name,
        launcher=job.launcher,
        profile=", ".join(names) or None,
        job_file=resolved.job_file,
        log=job.log,
        topology=job.topology,
        ranks_log=launcher.STARTS_RANKS and job.topology.world_size != 1,
        nodes=tuple(nodes),
        warnings=tuple(warnings),
        notes=tuple(notes),
        supervision=job.supervision,
        fingerprint=fingerprint(job, job.fingerprint),
    )


def resume(
    plan: Plan, run_id: str | None = None, expected: Mapping[str, str] | None = None
) -> Plan:
    """Return the plan of a start that goes on from a checkpoint: `resume_args` from the first try.

    `run_id` names the run that it goes on from, `expected` is that run's fingerprint.
    """
    nodes = []
    for node in plan.nodes:
        if node.resume_argv is None:
            raise ConfigError(
                f"`{plan.name}` does not say how it resumes",
                where=plan.job_file or None,
                hint="recovery: {resume_args: {resume_from_checkpoint: true}}",
            )
        nodes.append(replace(node, argv=node.resume_argv))
    return replace(plan, nodes=tuple(nodes), resumes=run_id, expected=dict(expected or {}))


def bind(plan: Plan, facts: Facts) -> Plan:
    """Return the plan with its slots filled from the facts; nothing else changes."""
    return replace(
        plan,
        nodes=tuple(_bind_node(node, facts) for node in plan.nodes),
        fingerprint={name: bind_word(word, facts) for name, word in plan.fingerprint.items()},
    )


def _bind_node(node: NodePlan, facts: Facts) -> NodePlan:
    interpreter = _bind_interpreter(node.interpreter, facts)
    if interpreter.path is None and Slot.PYTHON in facts:
        interpreter = replace(
            interpreter, path=facts[Slot.PYTHON], prefix=facts.get(Slot.PREFIX, interpreter.prefix)
        )
    return replace(
        _map_words(node, lambda word: bind_word(word, facts)),
        cwd=bind_word(node.cwd, facts),
        interpreter=interpreter,
        assets=_bind_assets(node.assets, facts),
    )


def bind_job(job: Job, facts: Facts) -> Job:
    """Return the job with the slots of its paths filled from the facts."""
    return replace(
        job,
        workdir=bind_word(job.workdir, facts),
        pythonpath=tuple(bind_word(path, facts) for path in job.pythonpath),
        interpreter=_bind_interpreter(job.interpreter, facts),
        assets=_bind_assets(job.assets, facts),
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


def _map_words(node: NodePlan, change: Callable[[Word], Word]) -> NodePlan:
    """Return a node with each word of its commands, variables and files changed."""
    resumed = node.resume_argv
    return replace(
        node,
        argv=tuple(map(change, node.argv)),
        env={name: _map_variable(var, change) for name, var in node.env.items()},
        files=tuple((name, change(body)) for name, body in node.files),
        resume_argv=None if resumed is None else tuple(map(change, resumed)),
    )


def _map_variable(var: EnvVar, change: Callable[[Word], Word]) -> EnvVar:
    beats = tuple(_map_variable(beaten, change) for beaten in var.beats)
    return replace(var, value=None if var.value is None else change(var.value), beats=beats)


def _place_assets(word: Word, places: Mapping[str, Word]) -> Word:
    """Return a word with {printed place of an asset: its place} put into its text."""
    for printed, place in places.items():
        parts = word.parts if isinstance(word, Template) else (word,)
        if any(isinstance(part, str) and printed in part for part in parts):
            pieces = (_replace(part, printed, place) for part in parts)
            word = join_words("", pieces)
    return word


def _replace(part: str | Slot, printed: str, place: Word) -> Word:
    return join_words(place, part.split(printed)) if isinstance(part, str) else text(part)


def _node(
    resolved: Resolved, host: Host, rank: int
) -> tuple[NodePlan, list[PlanWarning], list[str]]:
    job, profile = _on_host(resolved, host), resolved.profile_of(host)
    launch = Launch(job, profile.accelerator if profile else "cuda", rank)
    launcher = load_launcher(job.launcher)
    command, resumed = launcher.command(launch), None
    if job.resumed is not None:
        resumed = launcher.command(launch._replace(job=replace(job, args=job.resumed))).argv
    chosen = _select(resolved, profile, host) if profile else None
    required, forced = _required(job, command)
    env = environ.merge(
        (
            _built_in(job, command, resolved),
            chosen.env if chosen else (),
            _host_env(host, resolved),
            command.env,
            _gpus(job),
            job.env,
            _secrets(job),
            chosen.ladder if chosen else (),
            _debug(resolved.flags.debug),
            required,
        )
    )
    warnings = [*command.warnings, *forced]
    notes: list[str] = []
    if chosen is not None and profile is not None:
        warnings += plan_warnings.of_profile(profile, chosen, env, host)
        notes = list(plan_warnings.workarounds(resolved, profile, chosen, env))
    warnings += plan_warnings.of_variables(job, profile, chosen, env, host)
    rungs = gates.rungs(chosen, env, required) if chosen and chosen.rungs else ()
    if rungs:
        later = ", ".join(var.name for rung in rungs for var in rung)
        notes.append(
            f"started below the ladder (`recovery: {{ladder: true}}`): {later} come one step at a "
            "time, each with a restart after an illegal memory access"
        )
    node = NodePlan(
        host=host.name,
        node_rank=rank,
        cwd=job.workdir,
        argv=command.argv,
        program=command.program,
        env=env,
        unset=environ.SCRUBBED,
        keep=_keep(job),
        setup=(*host.setup, *job.setup),
        secrets=tuple(name for name in job.env_from if env[name].computed),
        interpreter=job.interpreter,
        processes=job.topology.processes,
        direct=_direct(resolved.hosts),
        files=command.files,
        single=command.single,
        resume_argv=resumed,
        rungs=rungs,
        assets=job.assets,
    )
    if resolved.flags.remote and job.assets:
        node = _map_words(node, lambda word: _place_assets(word, _places(resolved, job)))
    return node, warnings, notes


def _places(resolved: Resolved, job: Job) -> dict[str, Word]:
    """Return {the place of an asset as the job's text has it: the one on a host}."""
    pairs = zip(resolved.job.assets, job.assets, strict=True)
    # the longest first: one may begin another
    found = sorted(((str(asset.place), on_host.place) for asset, on_host in pairs), key=_length)
    return {printed: place for printed, place in found if printed != place}


def _length(pair: tuple[str, Word]) -> int:
    return -len(pair[0])


def _on_host(resolved: Resolved, host: Host) -> Job:
    """Return the job with the host's interpreter and workdir where the job names none."""
    job = resolved.job
    if job.interpreter.path is None and host.interpreter is not None:
        job = replace(job, interpreter=host.interpreter)
    if resolved.flags.remote:  # the host's workdir is the project's place there
        place = project_on_host(host, resolved.project)
        if ":" in str(place) and "pythonpath" not in job.origins:
            raise ConfigError(
                f"the project folder {place} cannot be part of PYTHONPATH: a colon",
                where=host.name,
                hint="rename it, or say `pythonpath: []`",
            )
        return bind_job(job, {Slot.PROJECT: place})
    if host.workdir is not None and "workdir" not in job.origins:
        job = replace(job, workdir=host.workdir)
    return job


def _keep(job: Job) -> tuple[str, ...] | None:
    if job.inherit == "all":
        return None
    return () if job.inherit == "none" else tuple(job.inherit)


def _select(resolved: Resolved, profile: Profile, host: Host) -> gates.Selection:
    flags, job = resolved.flags, resolved.job
    known = gates.DeclaredFacts(
        gpus=len(job.gpus) or job.topology.processes,
        nodes=job.topology.nodes,
        facts=host.facts,
    )
    recovery = job.supervision.recovery
    return gates.select(
        profile,
        known,
        ladder=flags.ladder,
        workarounds=flags.workarounds,
        climb=recovery is not None and recovery.ladder,
    )


def _built_in(job: Job, command: Command, resolved: Resolved) -> Iterable[EnvVar]:
    if job.topology.nodes > 1:
        yield from _on_route(text(Slot.INTERFACE), BUILT_IN, "the card on the way to the others")
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
    if command.argv[0] == job.interpreter.word:
        yield from _interpreter_env(job.interpreter)
    if load_launcher(job.launcher).SETS_THREADS:
        count = job.topology.processes
        yield EnvVar(
            "OMP_NUM_THREADS",
            text(Slot.THREADS),
            BUILT_IN,
            why="torchrun would set 1, plain Python all cores of the host",
            computed=f"usable cores / {count or 'GPUs'}, unless it is set already",
            soft=True,
        )
    direct = ",".join(_direct(resolved.hosts))
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


def _direct(hosts: tuple[Host, ...]) -> tuple[str, ...]:
    """Return the names that no proxy may stand between: loopback and the job's nodes."""
    nodes = [host.name for host in hosts] if len(hosts) > 1 else []
    return tuple(dict.fromkeys(["localhost", "127.0.0.1", "::1", *nodes]))


def _host_env(host: Host, resolved: Resolved) -> Iterable[EnvVar]:
    if host.interface is not None and resolved.job.topology.nodes > 1:
        yield from _on_route(host.interface, Origin(f"host {host.name}"), "the host's interface")
    yield from host.env


def _on_route(interface: Word, origin: Origin, why: str) -> Iterable[EnvVar]:
    # NCCL takes prefixes, so `=` asks for the exact name; gloo takes exact names only, and without
    # one the address that the host name stands for: 127.0.1.1 on Debian
    exact = f"={interface}" if isinstance(interface, str) else text("=", *interface.parts)
    yield EnvVar("NCCL_SOCKET_IFNAME", exact, origin, why=why)
    yield EnvVar("GLOO_SOCKET_IFNAME", interface, origin, why=why)


def _gpus(job: Job) -> Iterable[EnvVar]:
    if job.gpus:
        yield EnvVar("CUDA_VISIBLE_DEVICES", ",".join(job.gpus), job.origin("gpus"))


def _secrets(job: Job) -> Iterable[EnvVar]:
    for name in job.env_from:
        how = "env_from: taken from your environment at the start"
        yield EnvVar(name, None, job.origin("env_from"), computed=how)


def _debug(on: bool) -> Iterable[EnvVar]:
    if on:
        for name, value, why, cost in _DEBUG:
            yield EnvVar(name, value, Origin("--debug"), why=why, cost=cost)


def _required(job: Job, command: Command) -> tuple[list[EnvVar], list[PlanWarning]]:
    """Return the launcher's requirements that stand, and warnings for those forced off."""
    own = {var.name: var for var in (*job.env, *_secrets(job))}
    stand, warnings = [], []
    for var in command.required:
        mine = own.get(var.name)
        if mine is None or (mine.value == var.value and not mine.computed):
            stand.append(var)
        elif var.name in job.force:
            message = f"{_said(mine)} is forced; {job.launcher} {_needs(var)}: {var.why}"
            warnings.append(PlanWarning("forced-requirement", message, str(mine.origin)))
        else:
            stand.append(var)
            message = (
                f"{_said(mine)} is overridden: {job.launcher} {_needs(var)} "
                f"({var.why}); to insist: force: [{var.name}]"
            )
            warnings.append(PlanWarning("overridden-by-launcher", message, str(mine.origin)))
    return stand, warnings


def _needs(var: EnvVar) -> str:
    return f"needs {var.value}" if var.value is not None else "must not have it"


def _said(var: EnvVar) -> str:
    return f"{var.name} of env_from" if var.computed else f"{var.name}={var.value}"
