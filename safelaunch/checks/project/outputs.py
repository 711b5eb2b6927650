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

    from safelaunch.checks.context import Case, Site

# a checkpoint of many ranks and its logs are hundreds of files
_FEW_INODES = 1000


# -- room and permission ---------------------------------------------------------------------------


def _outputs(site: Site) -> Iterable[Question]:
    return [("room", path) for path in job_paths.outputs(site)]


@check("outputs", "project", asks=_outputs)
def outputs(site: Site) -> Iterator[Answer]:
    """Whether the folders of the results can be written, and have room."""
    fine = []
    for path in job_paths.outputs(site):
        told = site.told("room", path)
        if told.get("is_file"):
            hint = f"mv {told['folder']} {told['folder']}.old, or name another folder"
            yield warn(f"{path} cannot be made: {told['folder']} is a file", hint)
        elif not told["writable"]:
            yield warn(f"{path} cannot be written: no permission in {told['folder']}",
                       f"name a folder of yours, such as {_own_folder(site, path)}")  # fmt: skip
        else:
            short = _short(site, told)
            if short:
                yield warn(f"{path}: {short}", f"`df -h -i {told['folder']}`: free some, or name "
                           "a folder on another disk")  # fmt: skip
            else:
                fine.append(f"{path} ({job_size(told['free'])} free)")
    if fine:
        yield ok(", ".join(fine))


def _own_folder(site: Site, path: str) -> str:
    """Return a folder below the home, written out: programs do not know `~`."""
    home = str(site.known("system", "home") or "/home/me")
    return posixpath.join(home, posixpath.basename(path.rstrip("/")) or "out")


def _short(site: Site, told: Mapping[str, Any]) -> str:
    """Say that hardly anything can be written: less than one log may take, or few files."""
    least = site.case.job.supervision.log_cap
    if told["free"] < least:
        free = job_size(told["free"])
        return f"{free} are free, and a log alone may take {job_size(least)} (`log_cap`)"
    inodes = told.get("inodes")
    if inodes is not None and inodes < _FEW_INODES:
        return f"the disk has room for {inodes} more files"
    return ""


@check("run-folder", "project", asks=lambda _: [("home",)])
def run_folder(site: Site) -> Answer | None:
    """Whether the folder that runs are kept in can be written: a start needs it."""
    told = site.told("home")
    if not told["writable"]:
        return fail(f"{told['path']} cannot be written: no permission in {told['folder']}",
                    "export SAFELAUNCH_HOME=/a/folder/of/yours, for that user")  # fmt: skip
    short = _short(site, told)
    if short:
        # what a file system reserves for root is not counted as free
        is_full = told["free"] == 0 and site.known("system", "user") not in (None, "root")
        answer = fail if is_full or told.get("inodes") == 0 else warn
        return answer(f"{told['path']}: {short}", "export SAFELAUNCH_HOME=/a/folder/with/space")
    return ok(f"{told['path']} has {job_size(told['free'])}")


def _log(site: Site) -> str | None:
    """Return the job's log on a machine; fields that only a start fills stay in it."""
    plan = site.case.plan
    if plan is None or plan.log is None:
        return None
    path = plan.log.replace("{name}", plan.name)
    if site.rank > 0:
        stem, ending = posixpath.splitext(path)
        path = f"{stem}.node-{site.rank}{ending}"
    return path


def _log_asks(site: Site) -> Iterable[Question]:
    log = _log(site)
    return [] if log is None else [("room", posixpath.dirname(log) or "."), ("path", log)]


@check("log", "project", asks=_log_asks)
def log(site: Site) -> Answer | None:
    """Whether the job's own log can be made: a start refuses one that is there."""
    path = _log(site)
    if path is None:
        return None
    told = site.told("room", posixpath.dirname(path) or ".")
    if not told["writable"]:
        what = "is a file" if told.get("is_file") else "cannot be written"
        return fail(f"the log {path} cannot be made: {told['folder']} {what}",
                    "take `log:` out: a run keeps logs of its own")  # fmt: skip
    if "{" not in path and site.told("path", path)["kind"] is not None:
        return fail(f"the log {path} exists; a log is never overwritten",
                    "put {time} or {id} in its name")  # fmt: skip
    return ok(f"{path} can be made")


# -- what is there already -------------------------------------------------------------------------


def _overwritten(site: Site) -> str | None:
    """Return the output folder of a script that refuses one that is not empty."""
    job = site.case.job
    given = job_options.options(job)
    if job.script is None or "resume_from_checkpoint" in given or job_paths.resumes(job):
        return None
    folder = job_options.first_value(given, "output_dir")
    if folder is None or job_options.is_on(given, "overwrite_output_dir"):
        return None
    here = site.case.here(job.script, site.rank)
    return folder if here is not None and "overwrite_output_dir" in _text(here) else None


def _text(path: str) -> str:
    try:
        if not os.path.isfile(path):
            return ""  # a pipe would wait for ever
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def _used(site: Site) -> Iterable[Question]:
    folder = _overwritten(site)
    return [] if folder is None else [("path", folder), ("checkpoint", folder)]


@check("output-used", "project", asks=_used, source="transformers examples: run_clm.py")
def output_used(site: Site) -> Answer | None:
    """Whether a script that refuses an output folder with something in it is given an empty one."""
    folder = _overwritten(site)
    if folder is None:
        return None
    told = site.told("path", folder)
    if told["kind"] != "folder" or told.get("empty", True):
        return ok(f"{folder} is empty")
    steps = [name for name in site.told("checkpoint", folder)["steps"] if "checkpoint-" in name]
    if steps:
        what = f"{folder} holds {steps[-1]}: the script may go on from it unasked"
    else:
        what = f"{folder} is not empty, and the script refuses that"
    return warn(what, "args: {overwrite_output_dir: true}, or another `output_dir`")


def _left(site: Site) -> list[tuple[str, str, str]]:
    """Return (glob of what an earlier evaluation left, what becomes of it, what to do)."""
    job = site.case.job
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
    asks=lambda site: [("glob", pattern) for pattern, _, _ in _left(site)],
)
def leftovers(site: Site) -> Iterator[Answer]:
    """Whether no results of an earlier evaluation lie where this one's are collected."""
    for pattern, what, hint in _left(site):
        told = site.told("glob", pattern)
        if told["count"]:
            shown = f"{told['count']} of an earlier evaluation fit {pattern}: {what}"
            cure = hint or "keep those of this evaluation there, move the others away"
            yield warn(
                shown, f"{cure} (in {job_paths.full(site, '.')})" if hint[:3] == "mv " else cure
            )
        else:
            yield ok(f"nothing fits {pattern}")


# -- other runs ------------------------------------------------------------------------------------

_NAMES = ("experiment_name", "trial_name", "trainer.experiment_name", "trainer.project_name")


@check("live-runs", "project", asks=lambda _: [("runs",)], quick=True)
def live_runs(site: Site) -> Iterator[Answer]:
    """Whether no run that lives writes to the same folder, or has the same experiment names."""
    found: dict[str, Answer] = {}
    for run in site.told("runs"):
        run_id = str(run.get("id"))
        same = _same(site, run)
        if same and run_id not in found:
            found[run_id] = warn(
                f"run {run_id} is still running, and {same}",
                f"safelaunch stop {run_id}, or change that name in this job",
            )
    yield from found.values() or [ok("no other run uses its folders or names")]


def _same(site: Site, run: Mapping[str, Any]) -> str:
    """Say what a run and this job have in common; nothing where they have nothing."""
    nodes = (run.get("plan") or {}).get("nodes") or [{}]
    theirs: Mapping[str, Any] = nodes[0] if isinstance(nodes[0], dict) else {}
    argv = tuple(str(word) for word in theirs.get("argv") or ())
    cwd = str(theirs.get("cwd") or "/")
    given, ours = job_options.of_words(argv), job_options.options(site.case.job)
    home = str(site.known("system", "home") or "~")
    own = job_paths.saved(job_options.all_words(site.case.job))
    mine = {job_paths.on_machine(site, path) for path in own}
    for path in job_paths.saved([Args(words=argv)]):
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
    program = tuple(str(word) for word in site.plan.argv[site.plan.program :])
    is_whole = bool(program) and argv[-len(program) :] == program
    if run.get("name") == site.case.job.name and is_whole and cwd == site.cwd:
        return "is the same job with the same arguments"
    return ""


# -- several machines ------------------------------------------------------------------------------


def shared_folders(case: Case) -> list[str]:
    """Return the paths of a job on several machines that matter if they are shared: for `shared`.

    As the plan of the first node names them.
    """
    if case.plan is None or len(case.plan.nodes) == 1 or not case.sites:
        return []
    first = case.sites[0]
    found = [*job_paths.outputs(first), *job_paths.resumes(case.job)]
    return list(dict.fromkeys(job_paths.full(first, path) for path in found))


_OWN = ("/tmp/", "/var/tmp/", "/dev/shm/")  # noqa: S108 - of each machine
_SHARDED = ("use_deepspeed", "use_fsdp", "deepspeed", "fsdp", "zero_stage", "deepspeed_config_file")


@check("shared-folders", "project", once=True)
def shared(case: Case) -> Iterator[Answer]:
    """Whether folders that the nodes of a job must see together are on one file system."""
    wanted = [] if case.is_quick else shared_folders(case)
    if not wanted:
        return
    if not case.shared:
        yield skip("whether the hosts see one file system was not tried")
        return
    given = {**job_options.of_args(case.job.launcher_args), **job_options.options(case.job)}
    first = case.sites[0]
    together = []
    for path in wanted:
        groups = case.shared.get(path)
        if groups is None:
            continue
        if len(groups) == 1:
            together.append(path)
        elif any(name in given for name in _SHARDED) and "save_on_each_node" not in given:
            yield warn(f"{path} is not one folder on all hosts ({_groups(case, groups)}): each "
                       "keeps its own part of a sharded checkpoint",
                       "name a folder on shared storage; else all parts must be brought together "
                       "before a resume")  # fmt: skip
        else:
            yield ok(f"{path} is each host's own; results are on {first.name}")
    if together:
        yield ok(f"all hosts see {', '.join(together)}")


@check("areal-folders", "project", source="AReaL issues 25 and 51")
def areal_folders(site: Site) -> Iterator[Answer]:
    """Whether AReaL's workers on several nodes meet in folders that are not each node's own."""
    cluster, options = (
        launchers.load(site.case.job.launcher).CLUSTER,
        job_options.options(site.case.job),
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


def _groups(case: Case, groups: Sequence[Sequence[int]]) -> str:
    names = ["+".join(case.sites[rank].name for rank in group if rank < len(case.sites))
             for group in groups]  # fmt: skip
    return re.sub(r"^(.{80}).+", r"\1...", " | ".join(names))
