"""Job file, profile, hosts and flags to one Resolved job; every leaf keeps its origin."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.config import profiles, remote_paths
from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.config.paths import Paths, project_on_host
from safelaunch.config.schema.files import JOB
from safelaunch.config.schema.interpreter import read_interpreter
from safelaunch.config.set_option import lay_setting
from safelaunch.config.supervision import (
    check_ladder,
    lay_smoke,
    read_supervision,
    resumed_args,
)
from safelaunch.config.topology import read_topology
from safelaunch.config.yaml_io.node import Node, mapping, overlay, scalar
from safelaunch.config.yaml_io.reader import MAX_DEPTH, read_file
from safelaunch.environ import RANK_NAMES, check_name, check_rank_name
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.launchers import NAMES as LAUNCHERS
from safelaunch.launchers import load as load_launcher
from safelaunch.model import (
    BUILT_IN,
    Args,
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
    from collections.abc import Callable, Mapping

    from safelaunch.model import Word

_LOG_FIELDS = ("name", "time", "id")
_EXTENDS = next(key.type for key in JOB.keys if key.name == "extends")


class Flags(NamedTuple):
    """What the command line says on top of the files."""

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
    only_checked: bool = False  # a script that is missing is a finding, no error


class Resolved(NamedTuple):
    """Job, profile and hosts after merging; `tree` still knows what each value beat."""

    job: Job
    profile: Profile | None  # of the first host, where they have different ones
    profile_origin: Origin
    hosts: tuple[Host, ...]
    flags: Flags
    tree: Node
    job_file: str  # as the user named it; empty for a pasted line
    line: tuple[str, ...] = ()
    profiles: Mapping[str, Profile] = MappingProxyType({})  # of the hosts that have different ones
    project: str = ""  # the project's folder on this machine

    def profile_of(self, host: Host) -> Profile | None:
        """Return the profile that counts on a host."""
        return self.profiles.get(host.name, self.profile)


def resolve_file(shown: str, flags: Flags, cwd: str) -> Resolved:
    """Return the resolved job of a file; `shown` is the path as the user typed it."""
    path = os.path.join(cwd, shown)
    tree = read_job(path, shown, None, ())
    paths = Paths.from_job(path, cwd, flags.project_root, remote=flags.remote)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", os.path.splitext(os.path.basename(shown))[0])
    return resolve(tree, flags, paths, default_name=name.strip("-_")[:41] or "job", job_file=shown)


def read_job(path: str, shown: str, where: Origin | None, chain: tuple[str, ...]) -> Node:
    """Return the keys of a job file, laid over those that it extends. Raises ConfigError.

    `where` names it as a parent, `chain` are the files that lead to it.
    """
    real = os.path.realpath(path) if "\0" not in path else path
    if real in chain or len(chain) >= MAX_DEPTH:
        raise ConfigError(f"`extends` goes round in a circle: {shown}", where=where)
    if where is not None and not os.path.exists(path):
        raise ConfigError(f"no such file `{shown}`", where=where)
    tree = read_file(path, shown)
    JOB.check_keys(tree)
    parents = tree.get("extends")
    if parents is None or parents.is_null:
        return tree
    _EXTENDS.read(parents)
    below: Node | None = None
    for parent in parents.items if parents.kind == "list" else (parents,):
        next_path = os.path.normpath(os.path.join(os.path.dirname(path), parent.text))
        next_shown = os.path.normpath(os.path.join(os.path.dirname(shown), parent.text))
        below = overlay(below, read_job(next_path, next_shown, parent.origin, (*chain, real)))
    return overlay(below, tree)


def resolve(
    tree: Node, flags: Flags, paths: Paths, *, default_name: str, job_file: str
) -> Resolved:
    """Return the resolved job of a tree of keys."""
    if flags.smoke:
        tree = lay_smoke(tree, default_name)
    for setting in flags.sets:
        tree = lay_setting(tree, setting)
    if flags.profile is not None:
        tree = overlay(
            tree,
            mapping({"profile": scalar(flags.profile, Origin("--profile"))}, Origin("--profile")),
        )
    if flags.hosts:
        origin = Origin("--host")
        named = Node("list", origin, items=tuple(scalar(name, origin) for name in flags.hosts))
        tree = overlay(tree, mapping({"hosts": named}, origin))
    raw = tree
    tree, assets, outside = _with_assets(tree, flags, paths)
    values, origins = JOB.read(tree)
    if flags.remote:
        remote_paths.check(tree, paths)
    known = hosts_file.Hosts({}, {})
    if flags.hosts_file is not None:
        path = os.path.join(paths.cwd, flags.hosts_file)
        known = hosts_file.load(path, flags.hosts_file, _absolute(flags, paths))
    if "hosts" in values:
        values["hosts"] = hosts_file.expand(known, values["hosts"])
    job = replace(
        _job(values, origins, paths, default_name, tree),
        supervision=read_supervision(values, tree, paths, smoke=flags.smoke),
        resumed=resumed_args(tree),
        sync=_sync(values, outside),
        assets=assets,
        fingerprint=values.get("recovery", {}).get("fingerprint", ()),
        needs=values.get("needs", Needs()),
        inputs=values.get("inputs", ()),
    )
    machines = _machines(job, known, remote=flags.remote)
    if not flags.only_checked and _lies_here(values, machines, paths, remote=flags.remote):
        _check_script(values, origins, paths, remote=flags.remote)
    profile, profile_origin, several = _profile(values, origins, machines, known, paths)
    if flags.ladder is not None and profile is None:
        raise ConfigError("`--nccl-ladder` needs a profile", hint="--profile NAME")
    check_ladder(job.supervision.recovery, profile, tree)
    return Resolved(
        job=job,
        profile=profile,
        profile_origin=profile_origin,
        hosts=machines,
        flags=flags,
        tree=_with_places(raw, assets, machines[0], paths),
        job_file=job_file,
        profiles=several,
        project=paths.root,
    )


def _absolute(flags: Flags, paths: Paths) -> Callable[[str, Origin], str]:
    """Return what resolves a hosts file's paths of this machine."""
    return paths.real if flags.remote else lambda path, origin: str(paths.planned(path, origin))


def _with_assets(
    tree: Node, flags: Flags, paths: Paths
) -> tuple[Node, tuple[Placed, ...], tuple[str, ...]]:
    """Return the keys with the places of the assets in them, the assets, and what is no project."""
    if tree.get("assets") is None:
        return tree, (), ()
    from safelaunch.config import assets  # noqa: PLC0415 - only jobs that have some

    found = assets.placed(tree, paths, remote=flags.remote)
    outside = assets.patterns(found, paths) if flags.remote else ()
    return assets.fill(tree, found), found, outside


def _with_places(tree: Node, assets: tuple[Placed, ...], host: Host, paths: Paths) -> Node:
    """Return the keys with the places of the assets on a host in them, to be shown."""
    if not assets:
        return tree
    from safelaunch.config.assets import fill  # noqa: PLC0415 - only jobs that have some

    facts = {Slot.PROJECT: project_on_host(host, paths.root)}
    return fill(tree, [replace(asset, place=bind_word(asset.place, facts)) for asset in assets])


def _sync(values: Mapping[str, Any], outside: tuple[str, ...]) -> Sync:
    said: Sync = values.get("sync", Sync())
    return replace(said, exclude=(*said.exclude, *outside)) if outside else said


def _machines(job: Job, known: hosts_file.Hosts, *, remote: bool) -> tuple[Host, ...]:
    if remote and not job.hosts:
        raise ConfigError("which host?", hint="--host NAME; safelaunch hosts lists them")
    if remote:  # the others are known to ~/.ssh/config, or by address; the path there is mapped
        return tuple(known.machines.get(name) or Host(name) for name in job.hosts)
    if job.hosts:
        where = job.origin("hosts")
        return tuple(hosts_file.pick(known, name, where) for name in job.hosts)
    return (known.machines.get(hosts_file.LOCAL, Host(hosts_file.LOCAL)),)


def _profile(
    values: Mapping[str, Any],
    origins: Mapping[str, Origin],
    machines: tuple[Host, ...],
    known: hosts_file.Hosts,
    paths: Paths,
) -> tuple[Profile | None, Origin, Mapping[str, Profile]]:
    """Return the job's profile, or the hosts' where it names none; and each host's if they differ.

    Raises ConfigError.
    """
    if "profile" in values:
        origin = origins["profile"]
        base = paths.cwd if origin.source == "--profile" else paths.base(origin)
        return profiles.load(values["profile"], origin, base), origin, {}
    named = {host.profile: known.profiles[host.name] for host in machines if host.profile}
    loaded = {name: profiles.load(name, at, paths.base(at)) for name, at in named.items()}
    if not loaded:
        return None, BUILT_IN, {}
    first = next(iter(loaded))
    if len(loaded) > 1:
        bare = [host.name for host in machines if host.profile is None]
        kinds = {profile.accelerator for profile in loaded.values()}
        if bare or len(kinds) > 1:
            what = f"{bare[0]} has none" if bare else f"accelerators {', '.join(sorted(kinds))}"
            raise ConfigError(
                f"the hosts' profiles do not go together ({', '.join(sorted(loaded))}; {what})",
                where=origins.get("hosts"),
                hint="give the job's with --profile",
            )
        each = {host.name: loaded[host.profile] for host in machines if host.profile}
        return loaded[first], named[first], each
    return loaded[first], named[first], {}


def _job(
    values: dict[str, Any], origins: dict[str, Origin], paths: Paths, default_name: str, tree: Node
) -> Job:
    launcher = _launcher(values, origins, tree.origin)
    interpreter = read_interpreter(values, origins, paths.planned)
    workdir_origin = origins.get("workdir", BUILT_IN)
    workdir = values.get("workdir", ".")
    _check_target(values, origins, launcher, tree.origin)
    gpus, topology = read_topology(values, origins, launcher)
    job = Job(
        name=values.get("name", default_name),
        launcher=launcher,
        version=values.get("version"),
        script=values.get("script"),
        module=values.get("module"),
        command=values.get("command", ()),
        args=values.get("args", Args()),
        launcher_args=values.get("launcher_args", Args()),
        topology=topology,
        gpus=gpus,
        hosts=values.get("hosts", ()),
        mixed_precision=values.get("mixed_precision"),
        interpreter=interpreter or Interpreter(),
        workdir=paths.planned(workdir, workdir_origin),
        pythonpath=_pythonpath(values, paths, tree),
        env=values.get("env", ()),
        env_from=values.get("env_from", ()),
        inherit=values.get("inherit", "all"),
        setup=values.get("setup", ()),
        log=_log(values, origins),
        force=values.get("force", ()),
        origins=origins,
    )
    _check_names(job, tree)
    return job


def _launcher(values: dict[str, Any], origins: dict[str, Origin], where: Origin) -> str:
    name = values.get("launcher")
    if name is None:
        raise ConfigError("no `launcher`", where=where, hint="one of " + ", ".join(LAUNCHERS))
    if name not in LAUNCHERS:
        hint = did_you_mean(name, LAUNCHERS) or "known: " + ", ".join(LAUNCHERS)
        raise ConfigError(f"unknown launcher `{name}`", where=origins["launcher"], hint=hint)
    return str(name)


def _check_target(
    values: dict[str, Any], origins: dict[str, Origin], launcher: str, where: Origin
) -> None:
    takes = load_launcher(launcher).TARGETS
    given = [key for key in ("script", "module", "command") if key in values]
    wanted = " or ".join(f"`{key}`" for key in takes)
    if len(given) > 1:
        extra = next((key for key in given if key not in takes), given[0])
        raise ConfigError(
            f"`{given[0]}` and `{given[1]}` together",
            where=origins[given[1]],
            hint=f"give {wanted}; `{extra}: null` removes an inherited one",
        )
    if not given:
        raise ConfigError(f"what shall {launcher} run?", where=where, hint=f"give {wanted}")
    if given[0] not in takes:
        raise ConfigError(
            f"launcher `{launcher}` takes no `{given[0]}`",
            where=origins[given[0]],
            hint=f"give {wanted}",
        )


def _lies_here(
    values: dict[str, Any], machines: tuple[Host, ...], paths: Paths, *, remote: bool
) -> bool:
    """Whether the program lies on this machine; else a host says where, and may alone have it."""
    if remote:
        return not remote_paths.is_hosts_own(values.get("workdir", ""), paths)
    return "workdir" in values or any(host.workdir is None for host in machines)


def _check_script(
    values: dict[str, Any], origins: dict[str, Origin], paths: Paths, *, remote: bool
) -> None:
    if "script" not in values:
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
                hint="rename it, or say `pythonpath: []`",
            )
        return (paths.planned_root,)
    node = tree.get("pythonpath")
    if node is None:
        return ()
    items = node.items if node.kind == "list" else (node,)
    found = tuple(paths.planned(item.text, item.origin) for item in items)
    for path, item in zip(found, items, strict=True):
        if ":" in str(path):
            raise ConfigError("a colon cannot be part of a PYTHONPATH entry", where=item.origin)
    return found


def _log(values: dict[str, Any], origins: dict[str, Origin]) -> str | None:
    log = values.get("log")
    if log is None:
        return None
    for name in re.findall(r"\{([^}]*)\}", log):
        if name not in _LOG_FIELDS:
            known = ", ".join(f"{{{f}}}" for f in _LOG_FIELDS)
            raise ConfigError(
                f"unknown field `{{{name}}}`", where=origins["log"], hint=f"known: {known}"
            )
    return str(log)


def _check_names(job: Job, tree: Node) -> None:
    ranks = RANK_NAMES if load_launcher(job.launcher).STARTS_RANKS else frozenset[str]()
    for key in ("env_from", "force", "inherit"):
        node = tree.get(key)
        for item in node.items if node is not None and node.kind == "list" else ():
            check_name(item.text.removesuffix("*") if key == "inherit" else item.text, item.origin)
            if key == "env_from" and item.text in ranks:
                check_rank_name(EnvVar(item.text, "", item.origin), job.launcher)
    for var in job.env:
        if var.name in job.env_from:
            raise ConfigError(f"`{var.name}` is in `env` and in `env_from`", where=var.origin)
        if ranks:
            check_rank_name(var, job.launcher)
