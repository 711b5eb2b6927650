"""Checks where a job writes: its folders, its log, earlier results, and runs in progress."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Any

from safelaunch import launchers
from safelaunch.analysis import option_roles
from safelaunch.checks import job_options, job_paths
from safelaunch.checks.answers import Answer, Question, fail, ok, skip, warn
from safelaunch.checks.registry import check
from safelaunch.model import Args
from safelaunch.runs import store
from safelaunch.runtime.units import job_size
from safelaunch.sync.checkout_id import checkout_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from safelaunch.checks.context import CheckContext, HostContext

# a checkpoint of many ranks and its logs are hundreds of files
_FEW_INODES = 1000


@check("outputs", asks=lambda host: [("room", p) for p in job_paths.output_folders(host)])
def outputs(host: HostContext) -> Iterator[Answer]:
    """Whether the folders of the results are writable, and have space."""
    writable = []
    for path in job_paths.output_folders(host):
        room = host.answer("room", path)
        folder, short = room["folder"], _short_of_space(host, room)
        if room.get("is_file"):
            hint = f"mv {folder} {folder}.old, or name another folder"
            yield warn(f"{path} cannot be created: {folder} is a file", hint)
        elif not room["writable"]:
            # written out: programs do not expand `~`
            home = str(host.get("system", "home") or "/home/me")
            own = posixpath.join(home, posixpath.basename(path.rstrip("/")) or "out")
            what = f"{path} cannot be written: {_why_not(room)}"
            yield warn(what, f"name a folder of your own, such as {own}")
        elif short:
            hint = f"`df -h -i {folder}`: free some, or name a folder on another disk"
            yield warn(f"{path}: {short}", hint)
        else:
            free = room.get("free")
            writable.append(path if free is None else f"{path} ({job_size(free)} free)")
    if writable:
        yield ok(", ".join(writable))


def _why_not(room: Mapping[str, Any]) -> str:
    """Return why a folder cannot be written."""
    why = room.get("why")
    return f"{room['folder']} {why}" if why else f"no permission in {room['folder']}"


def _short_of_space(host: HostContext, room: Mapping[str, Any]) -> str:
    """Return that the disk has less space than one log may need, or few inodes; else nothing."""
    least, free, inodes = host.job.supervision.log_cap, room.get("free"), room.get("inodes")
    if free == 0:
        return "the disk is full"
    if free is not None and free < least:
        return f"{job_size(free)} are free, and a log alone may need {job_size(least)} (`log_cap`)"
    if inodes is not None and inodes < _FEW_INODES:
        return f"the disk has inodes for {inodes} more files"
    return ""


@check("run-folder", asks=lambda _: [("home",)])
def run_folder(host: HostContext) -> Answer | None:
    """Whether the folder of the runs is writable: a start needs it."""
    room = host.answer("home")
    if not room["writable"]:
        what = f"{room['path']} cannot be written: {_why_not(room)}"
        return fail(what, "export SAFELAUNCH_HOME=/a/folder/of/yours, for that user")
    short = _short_of_space(host, room)
    if short:
        # what a file system reserves for root is not counted as free
        is_full = room["free"] == 0 and host.get("system", "user") not in (None, "root")
        answer = fail if is_full or room.get("inodes") == 0 else warn
        return answer(f"{room['path']}: {short}", "export SAFELAUNCH_HOME=/a/folder/with/space")
    free = room.get("free")
    return ok(room["path"] if free is None else f"{room['path']} has {job_size(free)}")


def _log(host: HostContext) -> str | None:
    """Return the job's log on a host; it still contains fields that only a start fills."""
    plan = host.context.plan
    if plan is None or plan.log is None:
        return None
    path = plan.log.replace("{name}", plan.name)
    stem, ending = posixpath.splitext(path)
    return f"{stem}.node-{host.rank}{ending}" if host.rank > 0 else path


def _log_questions(host: HostContext) -> Iterable[Question]:
    log = _log(host)
    return [] if log is None else [("room", posixpath.dirname(log) or "."), ("path", log)]


@check("log", asks=_log_questions)
def log(host: HostContext) -> Answer | None:
    """Whether the job's own log can be created: a start never overwrites one."""
    path = _log(host)
    if path is None:
        return None
    room = host.answer("room", posixpath.dirname(path) or ".")
    if not room["writable"]:
        why = f"{room['folder']} is a file" if room.get("is_file") else _why_not(room)
        what = f"the log {path} cannot be created: {why}"
        return fail(what, "remove `log:`: a run keeps logs of its own")
    if "{" not in path and host.answer("path", path)["kind"] is not None:
        what = f"the log {path} exists; a log is never overwritten"
        return fail(what, "put {time} or {id} in its name")
    return ok(f"{path} can be created")


def _protected_output(host: HostContext) -> str | None:
    """Return the output folder of a script that refuses one that is not empty."""
    job = host.job
    options = job_options.options(job)
    if job.script is None or "resume_from_checkpoint" in options or job_paths.checkpoints(job):
        return None
    folder = job_options.first_value(options, "output_dir")
    if not folder or job_options.is_on(options, "overwrite_output_dir"):
        return None
    script = host.context.project_files.text(job.script)
    return folder if script is not None and b"overwrite_output_dir" in script else None


def _used_questions(host: HostContext) -> Iterable[Question]:
    folder = _protected_output(host)
    return [] if folder is None else [("path", folder), ("checkpoint", folder)]


@check("output-used", asks=_used_questions, source="transformers examples: run_clm.py")
def output_used(host: HostContext) -> Answer | None:
    """Whether the output folder is empty if the script refuses one that is not."""
    path = _protected_output(host)
    if path is None:
        return None
    folder = host.answer("path", path)
    if folder["kind"] != "folder" or folder.get("empty", True):
        return ok(f"{path} is empty")
    steps = [step for step in host.answer("checkpoint", path)["steps"] if "checkpoint-" in step]
    what = f"{path} is not empty, and the script refuses that"
    if steps:
        what = f"{path} has {steps[-1]}: the script may resume from it without being told to"
    return warn(what, "args: {overwrite_output_dir: true}, or another `output_dir`")


def _leftovers(host: HostContext) -> list[tuple[str, str, str]]:
    """Return (glob of results of an earlier evaluation, what happens to them, what to do)."""
    job, workdir = host.job, job_paths.absolute(host, ".")
    options = job_options.options(job)
    words = [posixpath.basename(word) for word in (job.script or "", *job.command[:2])]
    leftovers = []
    if "evaluate.sh" in words:  # MiniOneRec
        hint = f"mv temp temp.old (in {workdir})"
        leftovers.append(("temp/*/*.json", "its merge includes every JSON there", hint))
    folder = job_options.first_value(options, "input_path")
    if "merge.py" in words and folder and "cuda_list" not in options:
        hint = "keep those of this evaluation there, move the others away"
        leftovers.append((f"{folder}/*.json", "the merge includes all of them", hint))
    result = job_options.first_value(options, "result_json_data")
    if result:
        what = "if this evaluation fails it passes for its result"
        leftovers.append((result, what, f"mv {result} {result}.old (in {workdir})"))
    results = job_options.first_value(options, "output_path")
    if "eval_and_aggregate.py" in words and results and "overwrite" not in options:  # AReaL 0.2
        what = "a data set with a result there is not evaluated again"
        leftovers.append((f"{results}/*", what, "args: {overwrite: true}"))
    return [entry for entry in leftovers if not job_paths.is_glob(entry[0].replace("*", ""))]


@check("leftovers", asks=lambda host: [("glob", glob) for glob, _, _ in _leftovers(host)])
def leftovers(host: HostContext) -> Iterator[Answer]:
    """Whether no results of an earlier evaluation are where this one's are collected."""
    for pattern, what, hint in _leftovers(host):
        count = host.answer("glob", pattern)["count"]
        if count:
            yield warn(f"{count} of an earlier evaluation match {pattern}: {what}", hint)
        else:
            yield ok(f"nothing matches {pattern}")


# the folder of the checkpoints has both names: AReaL's, verl's
_NAMES = (
    ("experiment_name", "trial_name"),
    ("trainer.experiment_name", "trainer.project_name"),
)


def _live_questions(host: HostContext) -> Iterable[Question]:
    return [("runs",), *(("real", path) for path in sorted(_result_folders(host)))]


@check("live-runs", asks=_live_questions, quick=True)
def live_runs(host: HostContext) -> Iterator[Answer]:
    """Whether no run in progress writes to the same folder or checkpoints, or is the same job."""
    clashes: dict[str, Answer] = {}
    live = host.answer("runs")["live"]
    earlier = _earlier_runs(host, live)
    for run in live:
        run_id = str(run.get("id"))
        if run_id in clashes or run_id in earlier:
            continue
        shared, doubtful = _shared_result(host, run), ""
        if not shared:
            doubtful = "is the same job with the same arguments" if _is_same_job(host, run) else ""
        if shared or doubtful:
            # results of one would overwrite those of the other
            answer = fail if shared else warn
            hint = f"safelaunch stop {run_id}, or change that name in this job"
            what = f"run {run_id} is still running, and {shared or doubtful}"
            clashes[run_id] = answer(what, hint)
    yield from clashes.values() or [ok("no other run uses its folders or names")]


def _earlier_runs(host: HostContext, live: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the runs that will have ended when this one begins: those that it waits for.

    And those that these wait for, and so on.
    """
    plan = host.context.plan
    earlier = {dependency.run for dependency in plan.after} if plan is not None else set()
    waits = {str(run.get("id")): set(map(str, run.get("after") or ())) for run in live}
    new = earlier
    while new:
        new = set[str]().union(*(waits.get(run_id, set()) for run_id in new)) - earlier
        earlier |= new
    return earlier


def _shared_result(host: HostContext, run: Mapping[str, Any]) -> str:
    """Return which results a run has in common with this job; nothing where there are none."""
    node, cwd, argv = _planned(host, run)
    own = _result_folders(host)
    # where links lead, as the host says: each of two jobs may name one folder in its own way
    own |= {a["value"] for q, a in host.answers.items() if q[0] == "real" and "value" in a}
    real = node.get("real") or {}
    theirs = _folders_of(host, node, cwd, argv)
    both = [path for path in theirs if path in own or real.get(path) in own]
    if both:
        return f"writes to {both[0]} as well"
    recovery = host.job.supervision.recovery
    log, other_log = _log(host), run.get("log")
    if log and other_log and "{" not in log and job_paths.host_path(host, log) == other_log:
        return f"writes its log to {log} as well"
    glob, other = recovery and recovery.checkpoint, (run.get("plan") or {}).get("checkpoint")
    if glob and other and job_paths.host_path(host, glob) == _join(host, cwd, str(other)):
        return f"has its checkpoints in {glob} as well"
    options, other_options = job_options.options(host.job), job_options.parse(Args(words=argv))
    for names in _NAMES:
        values = {name: job_options.first_value(options, name) for name in names}
        if all(
            value and value == job_options.first_value(other_options, name)
            for name, value in values.items()
        ):
            shown = ", ".join(f"{name} {value}" for name, value in values.items())
            return f"has the same {shown}"
    return ""


def _planned(
    host: HostContext, run: Mapping[str, Any]
) -> tuple[Mapping[str, Any], str, tuple[str, ...]]:
    """Return the plan of a run's first node, its working directory, and its command.

    Its paths in this project are as they are planned here; another checkout's are no paths.
    """
    nodes = (run.get("plan") or {}).get("nodes") or [{}]
    node: Mapping[str, Any] = nodes[0] if isinstance(nodes[0], dict) else {}
    place, project, context = run.get("place"), host.context.project, host.context
    to = place
    if place and run.get("checkout") and project and context.project_dirs:
        own = checkout_id(store.home(context.environ), project) == run["checkout"]
        to = job_paths.host_path(host, context.project_dirs[host.rank]) if own else "<another>"

    def moved(text: object) -> str:
        return str(text).replace(str(place), str(to)) if place else str(text)

    argv = tuple(moved(word) for word in node.get("argv") or ())
    return node, moved(node.get("cwd") or "/"), argv


def _result_folders(host: HostContext) -> set[str]:
    """Return the folders of this job's results: of its arguments, configs and OUTPUT_DIR."""
    arguments = [*job_options.program_args(host.job), *_config_args(host)]
    folders = job_paths.result_folders(arguments)
    own = {job_paths.host_path(host, path) for path in folders}
    output = job_options.variable(host, "OUTPUT_DIR")
    return own | ({job_paths.host_path(host, output)} if output else set())


def _folders_of(
    host: HostContext, node: Mapping[str, Any], cwd: str, argv: tuple[str, ...]
) -> list[str]:
    """Return the folders of another run's results, as far as its plan shows them."""
    arguments = [Args(words=argv)]
    if cwd == job_paths.host_path(host, "."):
        arguments += _config_args(host, argv)
    output = ((node.get("env") or {}).get("OUTPUT_DIR") or {}).get("value")
    folders = [*job_paths.result_folders(arguments), *([str(output)] if output else [])]
    return [_join(host, cwd, path) for path in folders]


def _config_args(host: HostContext, argv: tuple[str, ...] = ()) -> list[Args]:
    """Return the settings files that arguments name, as arguments: `output_dir` may be there."""
    sources = [Args(words=argv)] if argv else job_options.program_args(host.job)
    files = [named.value for args in sources for named in option_roles.config_files(args)]
    settings = map(host.context.project_files.settings, files)
    return [
        Args(words=tuple(f"--{key}={value}" for key, value in values.items()))
        for values in settings
        if isinstance(values, dict)
    ]


def _join(host: HostContext, cwd: str, path: str) -> str:
    home = str(host.get("system", "home") or "~")
    return posixpath.normpath(posixpath.join(cwd, path.replace("~", home, 1)))


def _is_same_job(host: HostContext, run: Mapping[str, Any]) -> bool:
    _, cwd, argv = _planned(host, run)
    program = tuple(str(word) for word in host.plan.argv[host.plan.program :])
    is_same = bool(program) and argv[-len(program) :] == program
    is_here = cwd == job_paths.host_path(host, ".")
    return run.get("name") == host.job.name and is_same and is_here


def shared_folders(context: CheckContext) -> list[str]:
    """Return the paths that the nodes of a job may have to share, as the first node names them."""
    if context.plan is None or len(context.plan.nodes) == 1 or not context.hosts:
        return []
    first = context.hosts[0]
    paths = [*job_paths.output_folders(first), *job_paths.checkpoints(context.job)]
    return list(dict.fromkeys(job_paths.absolute(first, path) for path in paths))


_OWN = ("/tmp/", "/var/tmp/", "/dev/shm/")  # noqa: S108 - of each machine
_SHARDED = ("use_deepspeed", "use_fsdp", "deepspeed", "fsdp", "zero_stage", "deepspeed_config_file")


@check("shared-folders", once=True)
def shared(context: CheckContext) -> Iterator[Answer]:
    """Whether folders that the nodes of a job must share are on one file system."""
    paths = [] if context.is_quick else shared_folders(context)
    if paths and not context.shared:
        yield skip("whether the hosts share a file system was not tried")
        return
    options = job_options.with_launcher(context.job)
    together = []
    for path in paths:
        groups = context.shared.get(path, ())
        if len(groups) == 1:
            together.append(path)
        elif (
            groups
            and "save_on_each_node" not in options
            and not options.keys().isdisjoint(_SHARDED)
        ):
            yield warn(
                f"{path} is not one folder on all hosts ({_groups(context, groups)}): each keeps "
                "its own part of a sharded checkpoint",
                "name a folder on shared storage; else all parts must be collected before a resume",
            )
        elif groups:
            yield ok(f"{path} is each host's own; results are on {context.hosts[0].name}")
    if together:
        yield ok(f"all hosts share {', '.join(together)}")


def _groups(context: CheckContext, groups: Sequence[Sequence[int]]) -> str:
    names = ["+".join(context.hosts[rank].name for rank in group if rank < len(context.hosts))
             for group in groups]  # fmt: skip
    return re.sub(r"^(.{80}).+", r"\1...", " | ".join(names))


@check("areal-folders", source="AReaL issues 25 and 51")
def areal_folders(host: HostContext) -> Iterator[Answer]:
    """Whether AReaL's workers on several nodes exchange files in folders that all nodes share."""
    cluster = launchers.load(host.job.launcher).CLUSTER
    options = job_options.options(host.job)
    nodes = job_options.first_value(options, *cluster.node_options) if cluster is not None else None
    if cluster is None or nodes in (None, "1"):
        return
    for name in cluster.shared_folders:
        path = job_options.first_value(options, name)
        if path is not None and (path + "/").startswith(_OWN):
            what = f"{name}={path} with {nodes} nodes: each has a folder of its own there"
            yield warn(what, f"{name}= a folder on storage that all nodes share")
        elif path is not None:
            yield ok(f"{name}={path}")
