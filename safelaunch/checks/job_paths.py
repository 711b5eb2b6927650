"""Which words of a job are paths, and whether they exist where the job runs.

A path in the project, or in an asset, is copied to the host: it exists there if it exists on this
machine. Results and checkpoints exist on the host alone, so the host is asked as well.
"""

# ruff: noqa: PLC0415 - difflib, glob and the probe's questions: only where a path is missing

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING, Any

from safelaunch.analysis import option_roles
from safelaunch.checks import job_options
from safelaunch.checks.answers import NotKnown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from safelaunch.analysis.option_roles import NamedArgument
    from safelaunch.checks.context import HostContext
    from safelaunch.model import Args, Job, NodePlan

_SHARED = ("fileroot", "log_dir", "logging_dir", "tensorboard_dir")  # several runs may share these
_FILE = re.compile(r"\.(jsonl?|csv|tsv|txt|parquet|log|md|html)$")
_UNRESOLVED = re.compile(r"[$<>{}\n]|^\s*$")  # such a path is not known before the start
_MAGIC = re.compile(r"[*?\[]")
_LAUNCHER_FILES = ("config_file", "deepspeed_config_file")
_ALIKE = 0.6  # ratio of difflib


def output_folders(host: HostContext) -> list[str]:
    """Return the folders that the job's arguments or environment name for its output."""
    return named_outputs(host.job, host.plan)


def named_outputs(job: Job, node: NodePlan) -> list[str]:
    """Return the folders that a job's arguments, or a node's environment, name for its output."""
    env = {name: var.value for name, var in node.env.items() if isinstance(var.value, str)}
    arguments = job_options.program_args(job)
    return _paths(_folder(o.value) for a in arguments for o in option_roles.output_folders(a, env))


def result_folders(arguments: Iterable[Args]) -> list[str]:
    """Return the folders of results that no two runs should share."""
    outputs = (o for args in arguments for o in option_roles.output_folders(args, {}))
    return _paths(_folder(o.value) for o in outputs if not o.option.endswith(_SHARED))


def _folder(path: str) -> str:
    """Return the folder of a file of results: `res/final.json`."""
    return posixpath.dirname(path) or "." if _FILE.search(path) else path


def _select(job: Job, role: Callable[[Args], Iterable[NamedArgument]]) -> list[NamedArgument]:
    """Return the arguments of the job's program with a role."""
    return [arg for args in job_options.program_args(job) for arg in role(args)]


def model_args(job: Job) -> list[str]:
    """Return the models in the job's arguments: paths, and ids of a hub; no tokenizers."""
    models = _select(job, option_roles.model_paths)
    return _paths(arg.value for arg in models if not arg.option.startswith("tokenizer"))


def model_kinds(job: Job) -> set[str]:
    """Return the words without a folder that `--model` names: of a path, an id, or a kind."""
    models = _select(job, option_roles.model_paths)
    paths = {arg.value for arg in models if arg.normalized != "model"}
    return {arg.value for arg in models if "/" not in arg.value} - paths


def has_tokenizer(job: Job) -> bool:
    """Whether the arguments name a tokenizer apart from the model."""
    models = _select(job, option_roles.model_paths)
    return any(arg.option.startswith("tokenizer") for arg in models)


def hub_ids(job: Job) -> list[tuple[str, str]]:
    """Return (kind, id) of each model and data set in the arguments that looks like a hub id."""
    named = [("models", arg.value) for arg in _select(job, option_roles.model_paths)]
    named += [("datasets", arg.value) for arg in _select(job, option_roles.dataset_paths)]
    return [pair for pair in dict.fromkeys(named) if option_roles.looks_like_hub_id(pair[1])]


def checkpoints(job: Job) -> list[str]:
    """Return the checkpoints that the job's arguments resume from."""
    paths = _paths(arg.value for arg in _select(job, option_roles.resume_paths))
    return [path for path in paths if path.lower() not in ("latest", "last", "best")]


def data_files(job: Job) -> list[str]:
    """Return the data files and folders in the job's arguments that must exist."""
    return _paths(arg.value for arg in _select(job, option_roles.data_files))


def config_files(job: Job) -> list[str]:
    """Return the configuration files in the job's arguments."""
    return _paths(arg.value for arg in _select(job, option_roles.config_files))


def launcher_files(job: Job) -> list[str]:
    """Return the configuration files that the job's launcher reads."""
    options = job_options.parse(job.launcher_args)
    return [options[name][0] for name in _LAUNCHER_FILES if name in options]


def _paths(values: Iterable[str]) -> list[str]:
    """Return each value that may be a path once, without quotes that a framework removes."""
    bare = dict.fromkeys(value.strip("'\"") for value in values)
    return [path for path in bare if not _UNRESOLVED.search(path) and "://" not in path]


def is_path(text: str) -> bool:
    """Whether the name of a model can only be a path."""
    return text.startswith("~") or ("/" in text and not option_roles.looks_like_hub_id(text))


def is_glob(text: str) -> bool:
    """Whether a path has glob characters."""
    return _MAGIC.search(text) is not None


def absolute(host: HostContext, path: str) -> str:
    """Return a path of the job from the root, or from `~/`, the home folder of a host."""
    if path.startswith("~/"):
        return path
    return posixpath.normpath(posixpath.join(host.cwd, path))


def host_path(host: HostContext, path: str) -> str:
    """Return a path of the job with the host's home folder, as far as that is known."""
    return _expand_home(absolute(host, path), str(host.get("system", "home") or "~"))


def _expand_home(path: str, home: str) -> str:
    return home + path[1:] if path.startswith("~/") else path


def local_source(host: HostContext, path: str) -> str | None:
    """Return the path of this machine that is copied to a path of the host, or None."""
    roots = _roots(host, path)
    if roots is None:
        return None
    local, remote = roots
    return os.path.normpath(local + absolute(host, path)[len(remote) :])


def _roots(host: HostContext, path: str) -> tuple[str, str] | None:
    """Return the folder of this machine that is copied to a path's folder, and that folder."""
    context, full = host.context, absolute(host, path)
    if host.is_local or context.project is None:
        return None
    pairs = [(asset.path, str(asset.place)) for asset in host.plan.assets]
    for local, remote in (*pairs, (context.project, context.project_dirs[host.rank])):
        if full == remote or full.startswith(remote.rstrip("/") + "/"):
            return local, remote.rstrip("/")
    return None


def answer(host: HostContext, kind: str, path: str) -> Any:
    """Return the answer about a path: of this machine if it is copied, else of the host.

    Raises NotKnown.
    """
    source = local_source(host, path)
    if source is not None:
        from safelaunch.runtime.facts import commands, questions

        try:
            result = questions.answer("/", kind, [source])
        except commands.Skip:
            result = None
        if result is not None and result.get("kind", "") is not None:
            return result
    elif not path.startswith(("/", "~")):
        check_workdir(host)
    return host.answer(kind, path)


def check_workdir(host: HostContext) -> None:
    """Raise NotKnown where relative paths have no start: `workdir` reports the missing folder."""
    folder = host.answers.get(("path", "."), {}).get("value")
    if folder is not None and folder["kind"] is None:
        raise NotKnown(f"the working directory {absolute(host, '.')} does not exist")


def glob_matches(host: HostContext, pattern: str) -> tuple[int, list[str]]:
    """Return how many paths match a glob on the host or will be copied, and the first of them."""
    remote = host.answer("glob", pattern)
    roots, source = _roots(host, pattern), local_source(host, pattern)
    if roots is None or source is None:
        return remote["count"], [_below(path, host.cwd) for path in remote["found"]]
    from safelaunch.runtime.facts import commands, questions

    try:
        local = questions.answer("/", "glob", [source])
    except commands.Skip as e:
        raise NotKnown(str(e)) from e
    remote_root = _expand_home(roots[1], host.get("system", "home") or "")
    names = {_below(path, roots[0]) for path in local["found"]}
    names |= {_below(path, remote_root) for path in remote["found"]}
    return max(len(names), remote["count"], local["count"]), sorted(names)


def closest_name(host: HostContext, path: str) -> str | None:
    """Return the existing path of this machine that is most like a missing path."""
    source = absolute(host, path) if host.is_local else local_source(host, path)
    folder, name = posixpath.split(path)
    try:
        names = os.listdir(os.path.dirname(source)) if source is not None else []
    except OSError:
        return None
    import difflib

    stem = posixpath.splitext(name)[0]
    for match in difflib.get_close_matches(name, names, n=5, cutoff=_ALIKE):
        # a common ending such as `.jsonl` makes no name alike
        if difflib.SequenceMatcher(None, stem, posixpath.splitext(match)[0]).ratio() >= _ALIKE:
            return posixpath.join(folder, match)
    return None


def job_relative(host: HostContext, path: str) -> str | None:
    """Return a path, that exists beside the job file or in the project, from `workdir:` on."""
    context, base = host.context, host.context.local_path(".", host.rank)
    if base is None or context.project is None or path.startswith(("/", "~")):
        return None
    import glob

    file = context.resolved.job_file if context.resolved is not None else ""
    for folder in ([os.path.dirname(os.path.abspath(file))] if file else []) + [context.project]:
        full = os.path.join(folder, path)
        if os.path.lexists(full) or (is_glob(path) and any(glob.iglob(full))):
            return os.path.relpath(full, base).replace(os.sep, "/")
    return None


def _below(path: str, root: str) -> str:
    """Return what follows a folder in a path; the host's home folder may precede the folder."""
    _, separator, rest = path.partition(root.rstrip("/") + "/")
    return rest if separator and root else path


def how_to_provide(host: HostContext, path: str) -> str:
    """Return how a missing path gets to where the job runs."""
    other = job_relative(host, path)
    if other is not None:
        return f"write `{other}`: paths are relative to `workdir:`"
    closest = None if is_glob(path) else closest_name(host, path)
    if closest is not None and all(closest != entry.path for entry in host.job.inputs):
        return f"did you mean `{closest}`? else {_copy_hint(host, path)}"
    return _copy_hint(host, path)


def _copy_hint(host: HostContext, path: str) -> str:
    full = absolute(host, path)
    if is_glob(path) and host.is_local:
        return f"put a file there that matches {full}, or correct the path"
    if host.is_local:
        return f"put it at {full}, or correct the path"
    if local_source(host, path) is not None:
        return f"put it into the project at {path}, or correct the path"
    folder, name = posixpath.split(full)
    return f"safelaunch push {name} --host {host.name} --to {folder}, or correct the path"
