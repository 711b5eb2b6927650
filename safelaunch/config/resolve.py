"""Job file, profile, hosts and flags to one Resolved job; every leaf keeps its origin."""
# ruff: noqa: PLC0415 - config.assets and launcher_config are imported only for jobs that need them

from __future__ import annotations

import os
import re
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.config import profiles, remote_paths
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.config.hosts_file.reader import LOCAL, Hosts
from safelaunch.config.paths import Paths, project_on_host
from safelaunch.config.schema.files import JOB
from safelaunch.config.schema.interpreter import read_interpreter
from safelaunch.config.set_option import apply_set_option
from safelaunch.config.supervision import (
    MAX_NAME,
    apply_smoke,
    check_ladder,
    read_supervision,
    resumed_args,
    smoke_args,
)
from safelaunch.config.topology.nodes import read_topology
from safelaunch.config.topology.queue import check_queue, read_queue
from safelaunch.config.yaml_io.node import Node, mapping, overlay, scalar
from safelaunch.config.yaml_io.reader import MAX_DEPTH, read_file
from safelaunch.engines.slurm.options import FORCED_OPTIONS
from safelaunch.environ import RANK_NAMES, check_name, check_rank_name, rank_values
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.launchers import NAMES as LAUNCHERS
from safelaunch.launchers import load as load_launcher
from safelaunch.launchers.flag_table import flag_values
from safelaunch.model import (
    BUILT_IN,
    PEER_GRACE,
    Args,
    Container,
    EnvVar,
    Host,
    Interpreter,
    Job,
    Needs,
    Origin,
    Placed,
    Profile,
    Slot,
    Sync,
    bind_word,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.config.topology.requests import Reader
    from safelaunch.model import EngineBlock, FanOut, Word

_LOG_FIELDS = ("name", "time", "id")


class Flags(NamedTuple):
    """What the command line sets on top of the files."""

    profile: str | None = None
    sets: tuple[str, ...] = ()
    hosts_file: str | None = None
    ladder: int | None = None
    workarounds: bool = True
    debug: bool = False
    project_root: str | None = None
    smoke: bool = False
    remote: bool = False  # the job's hosts are others than this machine
    hosts: tuple[str, ...] = ()  # instead of the job's own
    direct: bool = False
    queue: bool = False  # wait for free cards
    engine: str | None = None  # what chooses the machines: slurm, kubernetes, ray
    container: str | None = None  # the image that the job runs in, or off
    only_checked: bool = False  # a script that is missing is a finding, no error


class SeveralJobs(ConfigError):  # noqa: N818 - as RunNotFound: what the file is
    """A job file has steps: `resolve_steps` reads it."""


class Resolved(NamedTuple):
    """Job, profile and hosts after merging; `tree` still has the values that each one replaced."""

    job: Job
    profile: Profile | None  # of the first host, if they have different ones
    profile_origin: Origin
    hosts: tuple[Host, ...]
    flags: Flags
    tree: Node
    job_file: str  # as the user named it; empty for a pasted line
    line: tuple[str, ...] = ()
    profiles: Mapping[str, Profile] = MappingProxyType({})  # of the hosts that have different ones
    project: str = ""  # the project's folder on this machine
    planned_project: Word = ""  # the same in the plan
    services: tuple[ResolvedService, ...] = ()
    fan_out: FanOut | None = None
    service_hosts: int = 0  # how many of the hosts, the last ones, run services and no ranks

    @property
    def queued_cards(self) -> int:
        """How many cards of the machine's queue the job and its services want."""
        jobs = (self.job, *(service.resolved.job for service in self.services))
        return sum(job.queue.count for job in jobs if job.queue is not None)

    def profile_of(self, host: Host) -> Profile | None:
        """Return the profile that applies to a host."""
        return self.profiles.get(host.name, self.profile)


class ResolvedService(NamedTuple):
    """A service of a job: its own job, and the keys that a job has not."""

    resolved: Resolved
    keys: Mapping[str, Any]
    node: int = 0  # number of the node on whose machine it runs


class EngineOfJob(NamedTuple):
    """What chooses the machines of a job, their entry, what is asked of it, and the paths there."""

    name: str
    reader: Reader
    entry: Host
    request: EngineBlock
    paths: Paths


def resolve_file(shown: str, flags: Flags, cwd: str) -> Resolved:
    """Return the resolved job of a file; `shown` is the path as the user typed it."""
    path = os.path.join(cwd, shown)
    tree = read_job(path, shown, None, ())
    paths = Paths.from_job(path, cwd, flags.project_root, remote=flags.remote)
    return resolve(tree, flags, paths, default_name=_default_name(shown), job_file=shown)


def _default_name(shown: str) -> str:
    """Return the name of a job file that has none itself."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", os.path.splitext(os.path.basename(shown))[0])
    return name.strip("-_")[:MAX_NAME] or "job"


class ResolvedStep(NamedTuple):
    """One step of a job file: its name, the steps before it, those it reads, its resolved job."""

    name: str
    after: tuple[str, ...]
    inputs: tuple[str, ...]
    resolved: Resolved


def resolve_steps(shown: str, flags: Flags, cwd: str) -> tuple[str, list[ResolvedStep]]:
    """Return the name of a job file and its steps, each after those it waits for; none without."""
    path = os.path.join(cwd, shown)
    tree = read_job(path, shown, None, ())
    if tree.get("steps") is None:
        return "", []
    from safelaunch.config import steps

    name, parts, sets = steps.split(tree, _default_name(shown), flags.sets)
    paths = Paths.from_job(path, cwd, flags.project_root, remote=flags.remote)
    from safelaunch.config.members import variables

    variables.check_settings(sets, [part.tree for part in parts])

    def resolved(step: Node) -> Resolved:
        own = flags._replace(sets=variables.settings_of(step, sets))
        return resolve(step, own, paths, default_name=name, job_file=shown)

    return name, [
        ResolvedStep(part.name, part.after, part.inputs, resolved(part.tree)) for part in parts
    ]


def read_job(path: str, shown: str, where: Origin | None, chain: tuple[str, ...]) -> Node:
    """Return the keys of a job file, merged over those that it extends. Raises ConfigError.

    `where` names it as a parent, `chain` are the files that lead to it.
    """
    real = os.path.realpath(path) if "\0" not in path else path
    if real in chain or len(chain) >= MAX_DEPTH:
        problem = "leads back to" if real in chain else "is nested too deep at"
        raise ConfigError(f"`extends` {problem} {shown}", where=where)
    if where is not None and not os.path.exists(path):
        raise ConfigError(f"no such file `{shown}`", where=where)
    try:
        tree = read_file(path, shown)
        JOB.check_keys(tree)
    except ConfigError as error:
        from safelaunch.config import foreign_files

        raise foreign_files.explain(path, shown, [key.name for key in JOB.keys]) or error from None

    def read_parent(parent: Node) -> Node:
        next_path, next_shown = (
            os.path.normpath(os.path.join(os.path.dirname(file), parent.text))
            for file in (path, shown)
        )
        return read_job(next_path, next_shown, parent.origin, (*chain, real))

    return JOB.with_parents(tree, read_parent)


def resolve(
    tree: Node, flags: Flags, paths: Paths, *, default_name: str, job_file: str
) -> Resolved:
    """Return the resolved job of a tree of keys. Raises SeveralJobs for one with steps."""
    steps = tree.get("steps")
    if steps is not None and not steps.is_null:
        raise SeveralJobs(
            "this file has `steps`, and one job is asked for",
            where=steps.origin,
            hint="run, remote and check take one file with steps",
        )
    raw = _with_config_file(_with_values(tree, flags, default_name), paths)
    tree, assets, ignored = _with_assets(raw, flags, paths)
    values, origins = JOB.read(tree)
    if flags.remote:
        remote_paths.check(tree, paths)
    hosts = _hosts(flags, paths)
    if "hosts" in values:
        values["hosts"] = hosts_file.expand(hosts, values["hosts"])
    chosen = _engine(values, origins, tree, flags, hosts=hosts, paths=paths)
    engine = None if chosen is None else chosen.name
    if chosen is not None:
        values[chosen.name], paths = chosen.request, chosen.paths
    is_elsewhere = flags.remote or (chosen is not None and chosen.reader.OWN_FILES)
    sync: Sync = values.get("sync", Sync())
    job = replace(
        _job({"name": default_name, **values}, origins, paths, tree, engine),
        supervision=read_supervision(values, tree, paths, smoke=flags.smoke),
        resumed=resumed_args(tree),
        smoke_args=smoke_args(tree),
        sync=replace(sync, exclude=(*sync.exclude, *ignored)),
        assets=assets,
        fingerprint=values.get("recovery", {}).get("fingerprint", ()),
        needs=values.get("needs", Needs()),
        inputs=values.get("inputs", ()),
    )
    machines = _machines(job, hosts, chosen, remote=flags.remote)
    if is_elsewhere:
        is_local = not remote_paths.is_host_path(values.get("workdir", ""), paths)
    else:
        is_local = "workdir" in values or any(host.workdir is None for host in machines)
    if is_local and not flags.only_checked:
        _check_script(values, origins, paths, remote=is_elsewhere)
    profile, profile_origin, by_host = _profile(values, origins, machines, hosts, paths)
    if flags.ladder is not None and profile is None:
        raise ConfigError("`--nccl-ladder` needs a profile", hint="--profile NAME")
    check_ladder(job.supervision.recovery, profile, tree)
    check_queue(job.queue, job.origin("queue"), machines[0], profile, boxed=bool(job.container))
    if chosen is not None:
        values[chosen.name] = chosen.reader.for_profile(chosen.request, profile, values, origins)
        slurm, kubernetes, ray = (values.get(name) for name in ("slurm", "kubernetes", "ray"))
        job = replace(job, slurm=slurm, kubernetes=kubernetes, ray=ray)
        machines *= job.topology.nodes  # alike, as far as their entry of the hosts file knows them
    resolved = Resolved(
        job=job,
        profile=profile,
        profile_origin=profile_origin,
        hosts=machines,
        flags=flags,
        tree=_with_places(raw, assets, machines[0], paths),
        job_file=job_file,
        profiles=by_host,
        project=paths.root,
        planned_project=paths.planned_root,
    )
    if values.get("services"):
        machines = _with_service_hosts(values, raw, machines, hosts, remote=flags.remote)
        resolved = resolved._replace(
            hosts=machines, service_hosts=len(machines) - len(resolved.hosts)
        )
    return resolved._replace(
        services=_services(resolved, values, raw, paths), fan_out=_fan_out(resolved, values, raw)
    )


def _with_service_hosts(
    values: dict[str, Any],
    tree: Node,
    machines: tuple[Host, ...],
    hosts: Hosts,
    *,
    remote: bool,
) -> tuple[Host, ...]:
    """Return the machines of a job, and behind them those that run only services of it."""
    from safelaunch.config.members import services

    names = services.hosts(values["services"], tree, hosts, remote=remote)
    by_name = {host.name: host for host in machines}
    for name in names:
        by_name.setdefault(name, hosts.machines.get(name) or Host(name))
    return tuple(by_name.values())


def _fan_out(resolved: Resolved, values: dict[str, Any], tree: Node) -> FanOut | None:
    """Return the parts of a job. Raises ConfigError."""
    if not any(values.get(key) for key in ("shards", "matrix", "part_gpus", "at_once")):
        return None
    from safelaunch.config.topology import fan_out

    return fan_out.read(values, tree, resolved.job, resolved.hosts)


def _services(
    resolved: Resolved, values: dict[str, Any], tree: Node, paths: Paths
) -> tuple[ResolvedService, ...]:
    """Return the services of a job, each resolved as a job of its own. Raises ConfigError."""
    if not values.get("services"):
        return ()
    from safelaunch.config.members import services
    from safelaunch.config.members.order import in_order

    services.check(values["services"], tree, resolved.job, resolved.hosts)
    flags = resolved.flags._replace(sets=(), smoke=False, ladder=None, direct=False, queue=False)
    numbers = {host.name: number for number, host in enumerate(resolved.hosts)}
    queue, by_name = resolved.job.queue, {}
    is_shared = len(resolved.hosts) > 1
    for name, keys in services.trees(tree, is_shared=is_shared):
        number = numbers[values["services"][name].get("host", resolved.hosts[0].name)]
        if resolved.job.hosts:
            flags = flags._replace(hosts=(resolved.hosts[number].name,))
        own = resolve(keys, flags, paths, default_name=name, job_file=resolved.job_file)
        if queue is not None:
            origin = resolved.job.origin("queue")
            job = services.without_cards(own.job, own.profile, origin)
            own = own._replace(job=job)
        own_keys = values["services"][name]
        with_ready = {**own_keys, "ready": services.readiness(own_keys)}
        by_name[name] = ResolvedService(own, with_ready, number)
    order = in_order({name: values["services"][name].get("after", ()) for name in by_name})
    return tuple(by_name[name] for name in order)


def _engine(
    values: dict[str, Any],
    origins: dict[str, Origin],
    tree: Node,
    flags: Flags,
    *,
    hosts: Hosts,
    paths: Paths,
) -> EngineOfJob | None:
    """Return what chooses the machines of a job; None where they are named. Raises ConfigError."""
    name, login = flags.engine, None
    if flags.remote:
        from safelaunch.config.topology.login_node import read_engine

        name, login = read_engine(values, origins, hosts.machines, name)
    if name is None:
        return None
    from safelaunch.config.topology import requests

    reader = requests.load(name)
    if reader.OWN_FILES and flags.remote:
        raise ConfigError(
            f"`remote` and {name}: no login node stands between",
            where=f"--on {name}",
            hint=f"safelaunch run --on {name} --dry-run",
        )
    entry = login or reader.entry(hosts.machines)
    request = reader.read(values, origins, tree, entry)
    if reader.OWN_FILES:
        remote_paths.check(tree, paths)
        if flags.project_root is None:
            paths = paths._replace(planned_root=reader.project(request, tree.origin))
    return EngineOfJob(name, reader, entry, request, paths)


def _hosts(flags: Flags, paths: Paths) -> Hosts:
    """Return the machines of the hosts file; none without one."""
    if flags.hosts_file is None:
        return Hosts({}, {})
    path = os.path.join(paths.cwd, flags.hosts_file)
    return hosts_file.load(
        path,
        flags.hosts_file,
        paths.real if flags.remote else lambda path, origin: str(paths.planned(path, origin)),
    )


def _with_flags(tree: Node, flags: Flags, default_name: str) -> Node:
    """Return the keys with those of the command line merged over them."""
    if flags.smoke:
        tree = apply_smoke(tree, default_name)
    for setting in flags.sets:
        tree = apply_set_option(tree, setting)
    if flags.profile is not None:
        origin = Origin("--profile")
        tree = overlay(tree, mapping({"profile": scalar(flags.profile, origin)}, origin))
    if flags.direct:
        origin = Origin("--direct")
        tree = overlay(tree, mapping({"start": scalar("direct", origin)}, origin))
    if flags.container is not None:
        tree = _with_image(tree, flags.container)
    if flags.queue and ((block := tree.get("queue")) is None or block.kind != "map"):
        origin = Origin("--queue")
        tree = overlay(tree, mapping({"queue": scalar("true", origin)}, origin))
    if flags.hosts:
        origin = Origin("--host")
        names = Node("list", origin, items=tuple(scalar(name, origin) for name in flags.hosts))
        tree = overlay(tree, mapping({"hosts": names}, origin))
    return tree


def _with_image(tree: Node, image: str) -> Node:
    """Return the keys of a job with the image of `--container`; its other keys stay."""
    origin = Origin("--container")
    block, value = tree.get("container"), scalar(image, origin)
    if block is not None and block.kind == "map" and image != "off":
        value = mapping({"image": value}, origin)
    return overlay(tree, mapping({"container": value}, origin))


def _with_values(tree: Node, flags: Flags, default_name: str) -> Node:
    """Return the keys with those of the command line, and with the values of their variables."""
    new = _with_flags(tree, flags, default_name)
    if not (new.get("vars") or new.get("services")):
        return new
    from safelaunch.config.members import variables

    variables.check_settings(flags.sets, [tree])
    return variables.substitute(new)


def _with_config_file(tree: Node, paths: Paths) -> Node:
    """Return the keys with those that the launcher's config file of the project adds."""
    launcher = tree.get("launcher")
    if launcher is None or launcher.text not in LAUNCHERS or tree.get("launcher_args") is None:
        return tree
    table = load_launcher(launcher.text).FLAGS
    if table is None or table.config_file is None:
        return tree
    from safelaunch.config.launcher_config import complete_job

    return complete_job(tree, table, paths)


def _with_assets(
    tree: Node, flags: Flags, paths: Paths
) -> tuple[Node, tuple[Placed, ...], tuple[str, ...]]:
    """Return the keys with the paths of the assets, the assets, and what a sync ignores."""
    if tree.get("assets") is None:
        return tree, (), ()
    from safelaunch.config import assets

    placed = assets.place_assets(tree, paths, remote=flags.remote)
    ignored = assets.ignore_patterns(placed, paths) if flags.remote else ()
    return assets.substitute_assets(tree, placed), placed, ignored


def _with_places(tree: Node, assets: tuple[Placed, ...], host: Host, paths: Paths) -> Node:
    """Return the keys with the paths of the assets on a host, to be shown."""
    if not assets:
        return tree
    from safelaunch.config.assets import substitute_assets

    facts = {Slot.PROJECT: project_on_host(host, paths.root)}
    bound = [replace(asset, place=bind_word(asset.place, facts)) for asset in assets]
    return substitute_assets(tree, bound)


def _machines(
    job: Job, hosts: Hosts, chosen: EngineOfJob | None, *, remote: bool
) -> tuple[Host, ...]:
    if chosen is not None:
        return (chosen.entry,)
    if remote and not job.hosts:
        raise ConfigError("no host named", hint="--host NAME; safelaunch hosts lists them")
    if remote:  # a name without an entry is one of ~/.ssh/config, or an address
        return tuple(hosts.machines.get(name) or Host(name) for name in job.hosts)
    if job.hosts:
        return tuple(hosts_file.select(hosts, name, job.origin("hosts")) for name in job.hosts)
    return (hosts.machines.get(LOCAL, Host(LOCAL)),)


def _profile(
    values: Mapping[str, Any],
    origins: Mapping[str, Origin],
    machines: tuple[Host, ...],
    hosts: Hosts,
    paths: Paths,
) -> tuple[Profile | None, Origin, Mapping[str, Profile]]:
    """Return the job's profile, or the hosts' if it names none; and each host's if they differ.

    Raises ConfigError.
    """
    if "profile" in values:
        origin = origins["profile"]
        base = paths.cwd if origin.source == "--profile" else paths.base(origin)
        return profiles.load(values["profile"], origin, base), origin, {}
    named = {host.profile: hosts.profiles[host.name] for host in machines if host.profile}
    loaded = {name: profiles.load(name, at, paths.base(at)) for name, at in named.items()}
    if not loaded:
        return None, BUILT_IN, {}
    first = next(iter(loaded))
    if len(loaded) == 1:
        return loaded[first], named[first], {}
    without = [host.name for host in machines if host.profile is None]
    kinds = {profile.accelerator for profile in loaded.values()}
    if without or len(kinds) > 1:
        what = f"{without[0]} has none" if without else f"accelerators {', '.join(sorted(kinds))}"
        raise ConfigError(
            f"the hosts' profiles do not go together ({', '.join(sorted(loaded))}; {what})",
            where=origins.get("hosts"),
            hint="give the job's with --profile",
        )
    by_host = {host.name: loaded[host.profile] for host in machines if host.profile}
    return loaded[first], named[first], by_host


def _job(
    values: dict[str, Any],
    origins: dict[str, Origin],
    paths: Paths,
    tree: Node,
    engine: str | None,
) -> Job:
    launcher = _launcher(values, origins, tree.origin)
    interpreter = read_interpreter(values, origins, paths.planned)
    _check_target(values, origins, launcher, tree.origin)
    gpus, topology = read_topology(values, origins, launcher, engine)
    for name in re.findall(r"\{([^}]*)\}", values.get("log", "")):
        if name not in _LOG_FIELDS:
            raise ConfigError(
                f"unknown field `{{{name}}}`",
                where=origins["log"],
                hint="known: " + ", ".join(f"{{{field}}}" for field in _LOG_FIELDS),
            )
    job = Job(
        name=values["name"],
        launcher=launcher,
        version=values.get("version"),
        script=values.get("script"),
        module=values.get("module"),
        command=values.get("command", ()),
        args=values.get("args", Args()),
        launcher_args=values.get("launcher_args", Args()),
        topology=topology,
        gpus=gpus if engine is None else (),  # it chooses them
        hosts=values.get("hosts", ()),
        mixed_precision=values.get("mixed_precision"),
        interpreter=interpreter or Interpreter(),
        workdir=paths.planned(values.get("workdir", "."), origins.get("workdir", BUILT_IN)),
        pythonpath=_pythonpath(values, paths, tree),
        env=values.get("env", ()),
        env_from=values.get("env_from", ()),
        inherit=values.get("inherit", "all"),
        setup=values.get("setup", ()),
        log=values.get("log"),
        force=values.get("force", ()),
        origins=origins,
        prefix=values.get("prefix", ()),
        python_options=values.get("python_options", ()),
        start=values.get("start", "launcher"),
        preload=values.get("preload", ()),
        peer_grace=values.get("peer_grace", PEER_GRACE),
        slurm=values.get("slurm"),
        kubernetes=values.get("kubernetes"),
        ray=values.get("ray"),
        ray_cluster=values.get("ray_cluster", False),
        engine=engine,
        container=_container(values, paths),
        queue=read_queue(values, origins, tree, topology, engine),
    )
    _check_names(job, tree)
    return job


def _container(values: dict[str, Any], paths: Paths) -> Container | None:
    block: Container | None = values.get("container")
    if block is None:
        return None
    from safelaunch.config.hosts_file.mounts import place_mounts

    return place_mounts(block, paths.planned)


def _launcher(values: dict[str, Any], origins: dict[str, Origin], where: Origin) -> str:
    name: str | None = values.get("launcher")
    if name is None:
        raise ConfigError("no `launcher`", where=where, hint="one of " + ", ".join(LAUNCHERS))
    if name not in LAUNCHERS:
        hint = did_you_mean(name, LAUNCHERS) or "known: " + ", ".join(LAUNCHERS)
        raise ConfigError(f"unknown launcher `{name}`", where=origins["launcher"], hint=hint)
    return name


def _check_target(
    values: dict[str, Any], origins: dict[str, Origin], launcher: str, where: Origin
) -> None:
    supported = load_launcher(launcher).TARGETS
    keys = [key for key in ("script", "module", "command") if key in values]
    choice = " or ".join(f"`{key}`" for key in supported)
    if len(keys) > 1:
        extra = next((key for key in keys if key not in supported), keys[0])
        raise ConfigError(
            f"`{keys[0]}` and `{keys[1]}` together",
            where=origins[keys[1]],
            hint=f"give {choice}; `{extra}: null` removes an inherited one",
        )
    if not keys:
        raise ConfigError(f"{launcher} has nothing to run", where=where, hint=f"give {choice}")
    if keys[0] not in supported:
        raise ConfigError(
            f"launcher `{launcher}` takes no `{keys[0]}`",
            where=origins[keys[0]],
            hint=f"give {choice}",
        )


def _is_program(values: dict[str, Any]) -> bool:
    """Whether `script:` is a program that the launcher looks up on PATH: `--no_python bash`."""
    name = values.get("launcher")
    table = load_launcher(name).FLAGS if name in LAUNCHERS else None
    is_path = "/" in values["script"] or values["script"].endswith(".py")
    if table is None or not table.no_python or is_path:
        return False
    return table.no_python in flag_values(values.get("launcher_args", Args()), table)


def _check_script(
    values: dict[str, Any], origins: dict[str, Origin], paths: Paths, *, remote: bool
) -> None:
    if "script" not in values or _is_program(values):
        return
    workdir = paths.real(values.get("workdir", "."), origins.get("workdir", BUILT_IN))
    script = os.path.join(workdir, values["script"])
    if not os.path.isfile(script):
        what = "is a directory" if os.path.isdir(script) else "does not exist"
        raise ConfigError(
            f"script `{values['script']}` {what}",
            where=origins["script"],
            hint=f"looked in {workdir if remote else paths.view(workdir)} (workdir)",
        )


def _pythonpath(values: dict[str, Any], paths: Paths, tree: Node) -> tuple[Word, ...]:
    if "pythonpath" not in values:
        if ":" in os.path.splitdrive(str(paths.planned_root))[1]:
            raise ConfigError(
                f"the project folder {paths.planned_root} cannot be part of PYTHONPATH: a colon",
                where=tree.origin,
                hint="rename it, or set `pythonpath: []`",
            )
        return (paths.planned_root,)
    node = tree.get("pythonpath")
    if node is None:
        return ()
    items = node.items if node.kind == "list" else (node,)
    entries = tuple(paths.planned(item.text, item.origin) for item in items)
    for path, item in zip(entries, items, strict=True):
        if ":" in str(path):
            raise ConfigError("a colon cannot be part of a PYTHONPATH entry", where=item.origin)
    return entries


def _check_names(job: Job, tree: Node) -> None:
    ranks = RANK_NAMES if load_launcher(job.launcher).STARTS_RANKS else frozenset[str]()
    for key in ("env_from", "force", "inherit"):
        node = tree.get(key)
        for item in node.items if node is not None and node.kind == "list" else ():
            if (key, item.text) == ("force", FORCED_OPTIONS):
                continue
            check_name(item.text.removesuffix("*") if key == "inherit" else item.text, item.origin)
            if key == "env_from" and item.text in ranks:
                check_rank_name(EnvVar(item.text, "", item.origin), job.launcher)
    for var in job.env:
        if var.name in job.env_from:
            raise ConfigError(f"`{var.name}` is in `env` and in `env_from`", where=var.origin)
        if ranks and rank_values(job.topology).get(var.name) != var.value:
            check_rank_name(var, job.launcher)
