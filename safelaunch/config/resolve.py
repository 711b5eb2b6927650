"""Job file, profile, hosts and flags to one Resolved job; every leaf keeps its origin."""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.config import hosts as hosts_file
from safelaunch.config import profiles
from safelaunch.config.interpreter import read_interpreter
from safelaunch.config.load import Node, mapping, overlay, parse, read_file, scalar
from safelaunch.config.schema import JOB
from safelaunch.environ import RANK_NAMES, check_name
from safelaunch.errors import ConfigError, did_you_mean
from safelaunch.launchers import NAMES as LAUNCHERS
from safelaunch.launchers import load as load_launcher
from safelaunch.model import Args, Host, Interpreter, Job, Origin, Profile, Topology

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOG_FIELDS = ("name", "time", "id")


class Flags(NamedTuple):
    """What the command line says on top of the files."""

    profile: str | None = None
    sets: tuple[str, ...] = ()
    hosts_file: str | None = None
    ladder: int | None = None
    workarounds: bool = True
    debug: bool = False
    project_root: str | None = None


class Resolved(NamedTuple):
    """Job, profile and hosts after merging; `tree` still knows what each value beat."""

    job: Job
    profile: Profile | None
    profile_origin: Origin
    hosts: tuple[Host, ...]
    flags: Flags
    tree: Node
    job_file: str


def resolve_file(shown: str, flags: Flags, cwd: str) -> Resolved:
    """Return the resolved job of a file; `shown` is the path as the user typed it."""
    path = os.path.join(cwd, shown)
    tree = _extended(path, shown, None, ())
    paths = Paths.of(path, cwd, flags.project_root)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", os.path.splitext(os.path.basename(shown))[0])
    return resolve(tree, flags, paths, default_name=name.strip("-_")[:41] or "job", job_file=shown)


def _extended(path: str, shown: str, where: Origin | None, chain: tuple[str, ...]) -> Node:
    real = os.path.realpath(path)
    if real in chain:
        raise ConfigError(f"`extends` goes round in a circle: {shown}", where=where)
    if where is not None and not os.path.exists(path):
        raise ConfigError(f"no such file `{shown}`", where=where)
    tree = read_file(path, shown)
    JOB.check_keys(tree)
    parents = tree.get("extends")
    if parents is None or parents.is_null:
        return tree
    below: Node | None = None
    for parent in parents.items if parents.kind == "list" else (parents,):
        if parent.kind != "scalar" or not parent.text:
            raise ConfigError("expected a job file", where=parent.origin)
        next_path = os.path.join(os.path.dirname(path), parent.text)
        next_shown = posixpath.normpath(posixpath.join(posixpath.dirname(shown), parent.text))
        below = overlay(below, _extended(next_path, next_shown, parent.origin, (*chain, real)))
    return overlay(below, tree)


class Paths(NamedTuple):
    """Where files lie, and where the plan says that they lie (`--project-root`)."""

    cwd: str
    job_dir: str  # real folder of the job file
    root: str  # real project root: the nearest .git or pyproject.toml above the job file
    shown_root: str  # what the plan prints instead of it

    @classmethod
    def of(cls, job_path: str, cwd: str, project_root: str | None) -> Paths:
        """Return the paths of a job file."""
        job_dir = os.path.normpath(os.path.dirname(os.path.abspath(os.path.join(cwd, job_path))))
        root = _project_root(job_dir)
        shown = os.path.abspath(os.path.join(cwd, project_root)) if project_root else root
        return cls(cwd, job_dir, root, shown)

    def base(self, origin: Origin) -> str:
        """Return the real folder that a relative path of that origin starts from."""
        if not origin.line:  # a flag: relative to the job file, like the key that it replaces
            return self.job_dir
        return os.path.dirname(os.path.abspath(os.path.join(self.cwd, origin.source)))

    def real(self, path: str, origin: Origin) -> str:
        """Return the path on this machine."""
        return os.path.normpath(os.path.join(self.base(origin), path))

    def planned(self, path: str, origin: Origin) -> str:
        """Return the path that the plan names."""
        return self.view(self.real(path, origin))

    def view(self, real: str) -> str:
        """Return a real path as if the project lay at the shown root."""
        if real == self.root:
            return self.shown_root
        if real.startswith(self.root.rstrip(os.sep) + os.sep):
            return posixpath.join(self.shown_root, os.path.relpath(real, self.root))
        return real


def _project_root(folder: str) -> str:
    at = folder
    while True:
        if any(os.path.exists(os.path.join(at, name)) for name in (".git", "pyproject.toml")):
            return at
        above = os.path.dirname(at)
        if above == at:
            return folder
        at = above


def resolve(
    tree: Node, flags: Flags, paths: Paths, *, default_name: str, job_file: str
) -> Resolved:
    """Return the resolved job of a tree of keys."""
    for setting in flags.sets:
        tree = _set(tree, setting)
    if flags.profile is not None:
        tree = overlay(
            tree,
            mapping({"profile": scalar(flags.profile, Origin("--profile"))}, Origin("--profile")),
        )
    values, origins = JOB.read(tree)
    known_hosts: dict[str, Host] = {}
    if flags.hosts_file is not None:
        known_hosts = hosts_file.load(os.path.join(paths.cwd, flags.hosts_file), flags.hosts_file)
    job = _job(values, origins, paths, default_name, tree)
    machines = _machines(job, known_hosts)
    profile, profile_origin = _profile(values, origins, machines, paths)
    return Resolved(job, profile, profile_origin, machines, flags, tree, job_file)


def _machines(job: Job, known: dict[str, Host]) -> tuple[Host, ...]:
    if job.hosts:
        where = job.origin("hosts")
        return tuple(hosts_file.pick(known, name, where) for name in job.hosts)
    return (known.get(hosts_file.LOCAL, Host(hosts_file.LOCAL)),)


def _profile(
    values: Mapping[str, Any],
    origins: Mapping[str, Origin],
    machines: tuple[Host, ...],
    paths: Paths,
) -> tuple[Profile | None, Origin]:
    if "profile" in values:
        origin = origins["profile"]
        base = paths.cwd if origin.source == "--profile" else paths.base(origin)
        return profiles.load(values["profile"], origin, base), origin
    named = {host.profile for host in machines if host.profile}
    if len(named) > 1:
        raise ConfigError(
            f"the hosts have different profiles ({', '.join(sorted(named))})",
            hint="give the job's with --profile",
        )
    for name in named:
        origin = Origin(f"host {machines[0].name}")
        return profiles.load(name, origin, paths.cwd), origin
    return None, Origin("built-in")


def _set(tree: Node, setting: str) -> Node:
    path, equals, value = setting.partition("=")
    origin = Origin(f"--set {path}")
    if not equals or not path:
        raise ConfigError("`--set` wants KEY=VALUE", where=f"--set {setting}")
    keys = [path] if "." not in path else path.split(".", 1)
    key = JOB.find(keys[0])
    if key is None:
        raise ConfigError(
            f"unknown key `{keys[0]}`",
            where=origin,
            hint=did_you_mean(keys[0], (k.name for k in JOB.keys)),
        )
    inner = keys[0] in ("args", "launcher_args", "env")
    if len(keys) > 1 and not inner:
        raise ConfigError(f"`{keys[0]}` has no parts", where=origin, hint=f"--set {keys[0]}=VALUE")
    if len(keys) == 1:
        return overlay(tree, mapping({keys[0]: _flag_value(value, origin)}, origin))
    old = tree.get(keys[0])
    if old is not None and old.kind == "list":
        raise ConfigError(
            f"`{keys[0]}` is a list in {old.origin}", where=origin, hint=f"--set '{keys[0]}=[...]'"
        )
    leaf = mapping({keys[1]: _flag_value(value, origin)}, origin)
    return overlay(tree, mapping({keys[0]: leaf}, origin))


def _flag_value(value: str, origin: Origin) -> Node:
    """Read a flag's value: text as it stands; `[...]` and `{...}` as YAML; `null` removes."""
    if not value.startswith(("[", "{")):
        return Node("scalar", origin, text=value, plain=bool(value))
    try:
        node = parse(f"v: {value}", origin.source).get("v")
    except ConfigError as e:
        raise ConfigError(e.message, where=origin, hint=e.hint) from None
    assert node is not None  # noqa: S101 - the text begins with `v: `
    return _at(node, origin)


def _at(node: Node, origin: Origin) -> Node:
    if node.kind == "scalar":
        return Node("scalar", origin, text=node.text, plain=node.plain)
    if node.kind == "list":
        return Node("list", origin, items=tuple(_at(item, origin) for item in node.items))
    return Node("map", origin, items=tuple((_at(k, origin), _at(v, origin)) for k, v in node.items))


def _job(
    values: dict[str, Any], origins: dict[str, Origin], paths: Paths, default_name: str, tree: Node
) -> Job:
    launcher = _launcher(values, origins, tree)
    interpreter = read_interpreter(values, origins, paths.planned)
    workdir_origin = origins.get("workdir", Origin("built-in"))
    workdir = values.get("workdir", ".")
    _check_target(values, origins, launcher, paths, tree)
    gpus, topology = _topology(values, origins, launcher)
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


def _launcher(values: dict[str, Any], origins: dict[str, Origin], tree: Node) -> str:
    name = values.get("launcher")
    if name is None:
        raise ConfigError(
            "no `launcher`", where=tree.origin.source, hint="one of " + ", ".join(LAUNCHERS)
        )
    if name not in LAUNCHERS:
        hint = did_you_mean(name, LAUNCHERS) or "known: " + ", ".join(LAUNCHERS)
        raise ConfigError(f"unknown launcher `{name}`", where=origins["launcher"], hint=hint)
    return str(name)


def _check_target(
    values: dict[str, Any], origins: dict[str, Origin], launcher: str, paths: Paths, tree: Node
) -> None:
    takes = load_launcher(launcher).TARGETS
    given = [key for key in ("script", "module", "command") if key in values]
    wanted = " or ".join(f"`{key}`" for key in takes)
    if len(given) > 1:
        raise ConfigError(
            f"`{given[0]}` and `{given[1]}` together",
            where=origins[given[1]],
            hint=f"give {wanted}",
        )
    if not given:
        raise ConfigError(f"no {wanted}: what shall {launcher} run?", where=tree.origin.source)
    if given[0] not in takes:
        raise ConfigError(
            f"launcher `{launcher}` takes no `{given[0]}`",
            where=origins[given[0]],
            hint=f"give {wanted}",
        )
    if given[0] == "script":
        workdir = paths.real(values.get("workdir", "."), origins.get("workdir", Origin("built-in")))
        script = os.path.join(workdir, values["script"])
        if not os.path.isfile(script):
            what = "is a directory" if os.path.isdir(script) else "does not exist"
            raise ConfigError(
                f"script `{values['script']}` {what}",
                where=origins["script"],
                hint=f"looked in {paths.view(workdir)} (workdir)",
            )


def _topology(
    values: dict[str, Any], origins: dict[str, Origin], launcher: str
) -> tuple[tuple[str, ...], Topology]:
    gpus: tuple[str, ...] = values.get("gpus", ())
    processes: int | None = values.get("processes")
    hosts = values.get("hosts", ())
    nodes = values.get("nodes", len(hosts) or 1)
    needs = load_launcher(launcher)
    if processes is None and gpus and needs.RANKS:
        processes = None if gpus == ("auto",) else len(gpus)
    elif processes is None:
        if needs.RANKS and needs.COUNT_REQUIRED:
            raise ConfigError(
                f"how many processes? {launcher} would guess",
                where=origins.get("launcher"),
                hint="give `processes: N` per node, or `gpus: auto`, `gpus: N`, `gpus: [0, 1]`",
            )
        processes = 1
    if processes is not None and gpus not in ((), ("auto",)) and processes > len(gpus):
        raise ConfigError(
            f"{processes} processes on {len(gpus)} GPUs",
            where=origins.get("processes"),
            hint="two ranks on one GPU fail in NCCL (duplicate GPU); list more or start fewer",
        )
    _check_nodes(nodes, hosts, launcher, origins)
    return (() if gpus == ("auto",) else gpus), Topology(nodes, processes)


def _check_nodes(
    nodes: int, hosts: tuple[str, ...], launcher: str, origins: dict[str, Origin]
) -> None:
    if nodes > 1 and not hosts:
        raise ConfigError(
            f"`nodes: {nodes}` without `hosts`",
            where=origins["nodes"],
            hint="hosts: [first, second]",
        )
    if hosts and len(hosts) != nodes:
        raise ConfigError(
            f"{len(hosts)} hosts for {nodes} nodes", where=origins.get("nodes", origins["hosts"])
        )
    if len(set(hosts)) != len(hosts):
        raise ConfigError("a host is listed twice", where=origins["hosts"])
    if nodes > 1 and not load_launcher(launcher).RANKS:
        raise ConfigError(
            f"launcher `{launcher}` runs on one node",
            where=origins.get("nodes", origins.get("hosts")),
        )


def _pythonpath(values: dict[str, Any], paths: Paths, tree: Node) -> tuple[str, ...]:
    if "pythonpath" not in values:
        return (paths.shown_root,)
    node = tree.get("pythonpath")
    if node is None:
        return ()
    items = node.items if node.kind == "list" else (node,)
    found = tuple(paths.planned(item.text, item.origin) for item in items)
    for path, item in zip(found, items, strict=True):
        if ":" in path:
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
    for key in ("env_from", "force"):
        node = tree.get(key)
        for item in node.items if node is not None and node.kind == "list" else ():
            check_name(item.text, item.origin)
    if isinstance(job.inherit, tuple):
        for name in job.inherit:
            check_name(name.removesuffix("*"), job.origin("inherit"))
    taken = set(job.env_from)
    for var in job.env:
        if var.name in taken:
            raise ConfigError(f"`{var.name}` is in `env` and in `env_from`", where=var.origin)
        if var.name in RANK_NAMES and var.value is not None and load_launcher(job.launcher).RANKS:
            raise ConfigError(
                f"`{var.name}` is set by {job.launcher} for each rank",
                where=var.origin,
                hint="say `processes:` and `nodes:` instead",
            )
