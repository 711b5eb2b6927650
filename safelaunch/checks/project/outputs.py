"""Checks of where a job writes: its folders, its log, what earlier runs left, what runs already."""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING, Any

from safelaunch import launchers
from safelaunch.checks import job_options, job_paths
from safelaunch.checks.answers import Answer, Question, fail, ok, skip, warn
from safelaunch.checks.registry import check
from safelaunch.model import Args
from safelaunch.runtime.units import job_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from safelaunch.checks.context import CheckContext, HostContext

# a checkpoint of many ranks and its logs are hundreds of files
_FEW_INODES = 1000


# -- room and permission ---------------------------------------------------------------------------


def _outputs(host: HostContext) -> Iterable[Question]:
    return [("room", path) for path in job_paths.output_folders(host)]


@check("outputs", "project", asks=_outputs)
def outputs(host: HostContext) -> Iterator[Answer]:
    """Whether the folders of the results can be written, and have room."""
    fine = []
    for path in job_paths.output_folders(host):
        told = host.answer("room", path)
        if told.get("is_file"):
            hint = f"mv {told['folder']} {told['folder']}.old, or name another folder"
            yield warn(f"{path} cannot be made: {told['folder']} is a file", hint)
        elif not told["writable"]:
            yield warn(f"{path} cannot be written: no permission in {told['folder']}",
                       f"name a folder of yours, such as {_own_folder(host, path)}")  # fmt: skip
        else:
            short = _short(host, told)
            if short:
                yield warn(f"{path}: {short}", f"`df -h -i {told['folder']}`: free some, or name "
                           "a folder on another disk")  # fmt: skip
            else:
                fine.append(f"{path} ({job_size(told['free'])} free)")
    if fine:
        yield ok(", ".join(fine))


def _own_folder(host: HostContext, path: str) -> str:
    """Return a folder below the home, written out: programs do not know `~`."""
    home = str(host.get("system", "home") or "/home/me")
    return posixpath.join(home, posixpath.basename(path.rstrip("/")) or "out")


def _short(host: HostContext, told: Mapping[str, Any]) -> str:
    """Say that hardly anything can be written: less than one log may take, or few files."""
    least = host.job.supervision.log_cap
    if told["free"] < least:
        free = job_size(told["free"])
        return f"{free} are free, and a log alone may take {job_size(least)} (`log_cap`)"
    inodes = told.get("inodes")
    if inodes is not None and inodes < _FEW_INODES:
        return f"the disk has room for {inodes} more files"
    return ""


@check("run-folder", "project", asks=lambda _: [("home",)])
def run_folder(host: HostContext) -> Answer | None:
    """Whether the folder that runs are kept in can be written: a start needs it."""
    told = host.answer("home")
    if not told["writable"]:
        return fail(f"{told['path']} cannot be written: no permission in {told['folder']}",
                    "export SAFELAUNCH_HOME=/a/folder/of/yours, for that user")  # fmt: skip
    short = _short(host, told)
    if short:
        # what a file system reserves for root is not counted as free
        is_full = told["free"] == 0 and host.get("system", "user") not in (None, "root")
        answer = fail if is_full or told.get("inodes") == 0 else warn
        return answer(f"{told['path']}: {short}", "export SAFELAUNCH_HOME=/a/folder/with/space")
    return ok(f"{told['path']} has {job_size(told['free'])}")


def _log(host: HostContext) -> str | None:
    """Return the job's log on a machine; fields that only a start fills stay in it."""
    plan = host.context.plan
    if plan is None or plan.log is None:
        return None
    path = plan.log.replace("{name}", plan.name)
    if host.rank > 0:
        stem, ending = posixpath.splitext(path)
        path = f"{stem}.node-{host.rank}{ending}"
    return path


def _log_asks(host: HostContext) -> Iterable[Question]:
    log = _log(host)
    return [] if log is None else [("room", posixpath.dirname(log) or "."), ("path", log)]


@check("log", "project", asks=_log_asks)
def log(host: HostContext) -> Answer | None:
    """Whether the job's own log can be made: a start refuses one that is there."""
    path = _log(host)
    if path is None:
        return None
    told = host.answer("room", posixpath.dirname(path) or ".")
    if not told["writable"]:
        what = "is a file" if told.get("is_file") else "cannot be written"
        return fail(f"the log {path} cannot be made: {told['folder']} {what}",
                    "take `log:` out: a run keeps logs of its own")  # fmt: skip
    if "{" not in path and host.answer("path", path)["kind"] is not None:
        return fail(f"the log {path} exists; a log is never overwritten",
                    "put {time} or {id} in its name")  # fmt: skip
    return ok(f"{path} can be made")


# -- what is there already -------------------------------------------------------------------------


def _overwritten(host: HostContext) -> str | None:
    """Return the output folder of a script that refuses one that is not empty."""
    job = host.job
    given = job_options.options(job)
    if job.script is None or "resume_from_checkpoint" in given or job_paths.checkpoints(job):
        return None
    folder = job_options.first_value(given, "output_dir")
    if folder is None or job_options.is_on(given, "overwrite_output_dir"):
        return None
    here = host.context.local_path(job.script, host.rank)
    return folder if here is not None and "overwrite_output_dir" in _text(here) else None


def _text(path: str) -> str:
    try:
        if not os.path.isfile(path):
            return ""  # a pipe would wait for ever
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def _used(host: HostContext) -> Iterable[Question]:
    folder = _overwritten(host)
    return [] if folder is None else [("path", folder), ("checkpoint", folder)]


@check("output-used", "project", asks=_used, source="transformers examples: run_clm.py")
def output_used(host: HostContext) -> Answer | None:
    """Whether a script that refuses an output folder with something in it is given an empty one."""
    folder = _overwritten(host)
    if folder is None:
        return None
    told = host.answer("path", folder)
    if told["kind"] != "folder" or told.get("empty", True):
        return ok(f"{folder} is empty")
    steps = [name for name in host.answer("checkpoint", folder)["steps"] if "checkpoint-" in name]
    if steps:
        what = f"{folder} holds {steps[-1]}: the script may go on from it unasked"
    else:
        what = f"{folder} is not empty, and the script refuses that"
    return warn(what, "args: {overwrite_output_dir: true}, or another `output_dir`")


def _left(host: HostContext) -> list[tuple[str, str, str]]:
    """Return (glob of what an earlier evaluation left, what becomes of it, what to do)."""
    job = host.job
    given = job_options.options(job)
    words = [posixpath.basename(word) for word in (job.script or "", *job.command[:2])]
    found = []
    if "evaluate.sh" in words:  # MiniOneRec
        found.append(
            ("temp/*/*.json", "its merge takes whatever JSON lies there", "mv temp temp.old")
        )
    folder = job_options.first_value(given, "input_path")
    if "merge.py" in words and folder and "cuda_list" not in given:
        found.append((f"{folder}/*.json", "the merge takes all of them", ""))
    result = job_options.first_value(given, "result_json_data")
    if result:
        found.append((result, "where this evaluation fails it is taken for its result",
                      f"mv {result} {result}.old"))  # fmt: skip
    results = job_options.first_value(given, "output_path")
    if "eval_and_aggregate.py" in words and results and "overwrite" not in given:  # AReaL 0.2
        what = "a data set with a result there is not evaluated again"
        found.append((f"{results}/*", what, "args: {overwrite: true}"))
    return [one for one in found if not job_paths.is_glob(one[0].replace("*", ""))]


@check(
    "leftovers",
    "project",
    asks=lambda host: [("glob", pattern) for pattern, _, _ in _left(host)],
)
def leftovers(host: HostContext) -> Iterator[Answer]:
    """Whether no results of an earlier evaluation lie where this one's are collected."""
    for pattern, what, hint in _left(host):
        told = host.answer("glob", pattern)
        if told["count"]:
            shown = f"{told['count']} of an earlier evaluation fit {pattern}: {what}"
            cure = hint or "keep those of this evaluation there, move the others away"
            yield warn(
                shown, f"{cure} (in {job_paths.absolute(host, '.')})" if hint[:3] == "mv " else cure
            )
        else:
            yield ok(f"nothing fits {pattern}")


# -- other runs ------------------------------------------------------------------------------------

_NAMES = ("experiment_name", "trial_name", "trainer.experiment_name", "trainer.project_name")


@check("live-runs", "project", asks=lambda _: [("runs",)], quick=True)
def live_runs(host: HostContext) -> Iterator[Answer]:
    """Whether no run that lives writes to the same folder, or has the same experiment names."""
    found: dict[str, Answer] = {}
    for run in host.answer("runs"):
        run_id = str(run.get("id"))
        same = _same(host, run)
        if same and run_id not in found:
            found[run_id] = warn(
                f"run {run_id} is still running, and {same}",
                f"safelaunch stop {run_id}, or change that name in this job",
            )
    yield from found.values() or [ok("no other run uses its folders or names")]


def _same(host: HostContext, run: Mapping[str, Any]) -> str:
    """Say what a run and this job have in common; nothing where they have nothing."""
    nodes = (run.get("plan") or {}).get("nodes") or [{}]
    theirs: Mapping[str, Any] = nodes[0] if isinstance(nodes[0], dict) else {}
    argv = tuple(str(word) for word in theirs.get("argv") or ())
    cwd = str(theirs.get("cwd") or "/")
    given, ours = job_options.parse(Args(words=argv)), job_options.options(host.job)
    home = str(host.get("system", "home") or "~")
    own = job_paths.result_folders(job_options.program_args(host.job))
    mine = {job_paths.host_path(host, path) for path in own}
    for path in job_paths.result_folders([Args(words=argv)]):
        at = posixpath.normpath(posixpath.join(cwd, path.replace("~", home, 1)))
        if at in mine:
            return f"writes to {at} as well"
    names = {
        name: job_options.first_value(ours, name)
        for name in _NAMES
        if job_options.first_value(ours, name)
    }
    if names and all(
        job_options.first_value(given, name) == value for name, value in names.items()
    ):
        return "has the same " + ", ".join(f"{name} {value}" for name, value in names.items())
    program = tuple(str(word) for word in host.plan.argv[host.plan.program :])
    is_whole = bool(program) and argv[-len(program) :] == program
    if run.get("name") == host.job.name and is_whole and cwd == host.cwd:
        return "is the same job with the same arguments"
    return ""


# -- several machines ------------------------------------------------------------------------------


def shared_folders(context: CheckContext) -> list[str]:
    """Return the paths of a job on several machines that matter if they are shared: for `shared`.

    As the plan of the first node names them.
    """
    if context.plan is None or len(context.plan.nodes) == 1 or not context.hosts:
        return []
    first = context.hosts[0]
    found = [*job_paths.output_folders(first), *job_paths.checkpoints(context.job)]
    return list(dict.fromkeys(job_paths.absolute(first, path) for path in found))


_OWN = ("/tmp/", "/var/tmp/", "/dev/shm/")  # noqa: S108 - of each machine
_SHARDED = ("use_deepspeed", "use_fsdp", "deepspeed", "fsdp", "zero_stage", "deepspeed_config_file")


@check("shared-folders", "project", once=True)
def shared(context: CheckContext) -> Iterator[Answer]:
    """Whether folders that the nodes of a job must see together are on one file system."""
    wanted = [] if context.is_quick else shared_folders(context)
    if not wanted:
        return
    if not context.shared:
        yield skip("whether the hosts see one file system was not tried")
        return
    given = {**job_options.parse(context.job.launcher_args), **job_options.options(context.job)}
    first = context.hosts[0]
    together = []
    for path in wanted:
        groups = context.shared.get(path)
        if groups is None:
            continue
        if len(groups) == 1:
            together.append(path)
        elif any(name in given for name in _SHARDED) and "save_on_each_node" not in given:
            yield warn(f"{path} is not one folder on all hosts ({_groups(context, groups)}): each "
                       "keeps its own part of a sharded checkpoint",
                       "name a folder on shared storage; else all parts must be brought together "
                       "before a resume")  # fmt: skip
        else:
            yield ok(f"{path} is each host's own; results are on {first.name}")
    if together:
        yield ok(f"all hosts see {', '.join(together)}")


@check("areal-folders", "project", source="AReaL issues 25 and 51")
def areal_folders(host: HostContext) -> Iterator[Answer]:
    """Whether AReaL's workers on several nodes meet in folders that are not each node's own."""
    cluster, options = (
        launchers.load(host.job.launcher).CLUSTER,
        job_options.options(host.job),
    )
    nodes = job_options.first_value(options, *cluster.node_options) if cluster is not None else None
    if cluster is None or nodes in (None, "1"):
        return
    for name in cluster.shared_folders:
        path = job_options.first_value(options, name)
        if path is None:
            continue
        if (path + "/").startswith(_OWN):
            yield warn(f"{name}={path} with {nodes} nodes: each has a folder of its own there",
                       f"{name}= a folder on storage that all nodes see")  # fmt: skip
        else:
            yield ok(f"{name}={path}")


def _groups(context: CheckContext, groups: Sequence[Sequence[int]]) -> str:
    names = ["+".join(context.hosts[rank].name for rank in group if rank < len(context.hosts))
             for group in groups]  # fmt: skip
    return re.sub(r"^(.{80}).+", r"\1...", " | ".join(names))
