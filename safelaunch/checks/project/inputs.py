"""Checks what a job reads: its program, configurations, inputs, a checkpoint to resume from."""

# ruff: noqa: PLC0415 - ast: only for a script that an older Python runs

from __future__ import annotations

import os
import posixpath
import sys
from typing import TYPE_CHECKING, Any

from safelaunch import launchers
from safelaunch.checks import job_options, job_paths
from safelaunch.checks.answers import OK, Answer, NotKnown, Question, fail, ok, warn
from safelaunch.checks.job_paths import how_to_provide
from safelaunch.checks.project import command
from safelaunch.checks.registry import check
from safelaunch.config.supervision import RESUME_EXAMPLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from safelaunch.checks.context import HostContext
    from safelaunch.model import Input

_SHOWN = 5  # of several paths
_CONFIG_FOLDERS = ("config", "configs", "conf", "cfg", "cfgs")
_NO_MODEL = "transformers Trainer: `Can't find a valid checkpoint at`"
_INTERRUPTED = "resume from another one; an interrupted save leaves such a checkpoint"


@check("workdir", asks=lambda _: [("path", ".")])
def workdir(host: HostContext) -> Answer | None:
    """Whether the folder that the job runs in exists: a start refuses without it.

    A folder of the project is copied to a host with the project.
    """
    if job_paths.local_source(host, ".") is not None:
        return None
    kind, folder = host.answer("path", ".")["kind"], job_paths.absolute(host, host.cwd)
    if kind == "folder":
        return ok(f"{folder} exists")
    what = "does not exist" if kind is None else "is no folder"
    origin = host.job.origins.get("workdir")
    where = "of the host's entry" if origin is None else f"({origin})"
    match = job_paths.closest_name(host, host.cwd) if host.is_local else None
    hint = f"did you mean `{match}`? else correct it" if match else "correct it"
    return fail(f"`workdir` {where}: {folder} {what}", f"{hint}, or `mkdir -p {folder}`")


def _script_questions(host: HostContext) -> Iterable[Question]:
    script = host.job.script
    return [*([] if script is None else [("path", script)]), *command.questions(host)]


@check("script", asks=_script_questions)
def script(host: HostContext) -> Answer | None:
    """Whether the job's script, or the file of its `command:`, exists and can be read."""
    name = host.job.script
    if name is None:
        return command.check_command(host)
    program = command.check_program(host)
    if program is not None and program.status != OK:
        return program
    file = job_paths.answer(host, "path", name)
    if file["kind"] == "file" and file.get("readable", True):
        return _syntax_error(host) or ok(f"{name} exists")
    if file["kind"] == "folder":
        return fail(f"script `{name}` is a folder", "name a file in it, or use `module:`")
    if file["kind"] is None:
        link = f", a link to {file['link']}" if file.get("link") else ""
        where, origin = job_paths.absolute(host, host.cwd), host.job.origin("script")
        hint = f"`script:` ({origin}) is relative to `workdir:`; {how_to_provide(host, name)}"
        return fail(f"script `{name}`{link} does not exist in {where}", hint)
    what = f"script `{name}` cannot be read"
    return fail(what, f"`chmod a+r {job_paths.absolute(host, name)}`, as its owner")


def _syntax_error(host: HostContext) -> Answer | None:
    """Return a warning where Python cannot parse the script.

    A newer Python than safelaunch's own may know more syntax: then the script is not parsed.
    """
    version, files = str(host.get("python", "version") or ""), host.context.project_files
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if not numbers or numbers > sys.version_info[:2] or files.script is None:
        return None
    error = files.syntax_error or _newer_syntax(files.text(host.job.script or ""), numbers)
    if error is None:
        return None
    line, reason = error
    what = f"{host.job.script}:{line}: {reason}: Python {version} does not start it"
    return warn(what, "correct that line")


def _newer_syntax(text: bytes | None, python: tuple[int, ...]) -> tuple[int, str] | None:
    """Return the (line, reason) of syntax that an older Python does not have, as far as known."""
    if text is None or python >= sys.version_info[:2] or python[0] != sys.version_info[0]:
        return None
    import ast

    try:
        ast.parse(text, feature_version=(python[0], python[1]))
    except SyntaxError as e:
        return e.lineno or 1, e.msg
    except (ValueError, RecursionError, MemoryError):
        return None
    return None


def _module_questions(host: HostContext) -> Iterable[Question]:
    name = host.job.module
    if name is None:
        return []
    paths = [*_module_files(host, name), name.split(".")[0]]
    return [("module", name.split(".")[0]), *(("path", path) for path in paths)]


def _module_files(host: HostContext, module: str) -> list[str]:
    """Return the files that `python -m` may run, in the order of PYTHONPATH."""
    stem = module.replace(".", "/")
    names = (f"{stem}.py", f"{stem}/__main__.py")
    return [posixpath.join(folder, n) for folder in ("", *host.pythonpath) for n in names]


@check("module", asks=_module_questions, quick=True)
def module(host: HostContext) -> Answer | None:
    """Whether the job's module is found, installed or in the project."""
    name = host.job.module
    if name is None:
        return None
    stem, top = name.replace(".", "/"), name.split(".")[0]
    for path in _module_files(host, name):
        if job_paths.answer(host, "path", path)["kind"] is not None:
            is_package = path.endswith(f"{stem}/__main__.py")
            return ok(f"{name} is {stem}{'/__main__' * is_package}.py")
    if not host.runs_python:
        raise NotKnown(f"the Python that `{' '.join(host.job.prefix)}` finds was not asked")
    package = host.answer("module", top)
    if not package["found"] and top in launchers.load(host.job.launcher).imports(host.job):
        return None  # the check `launcher` tells of it
    local = job_paths.answer(host, "path", top)
    if package["found"] and not _is_in_project(host, top, package["where"] or ""):
        return ok(f"{top} is {package['where'] or 'built in'}")
    # `setup` lines may change PYTHONPATH
    answer, what = (warn if host.plan.setup else fail), f"module `{name}` is not found"
    path = "PYTHONPATH" if host.context.is_pythonpath_set else "`pythonpath:`"
    hint = f"add its folder to {path}, or install it into the job's interpreter"
    if package["found"] or local["kind"] == "folder":  # it may be generated, or compiled
        answer = warn
        what = f"module `{name}`: neither {stem}.py nor {stem}/__main__.py exists"
        hint = f"name a file in {top} with `module:`, or create {stem}/__main__.py"
        match = job_paths.closest_name(host, f"{stem}.py") or ""
        if match.endswith(".py"):
            hint = f"`module: {match[:-3].replace('/', '.')}`, or create {stem}.py"
    return answer(what, hint)


def _is_in_project(host: HostContext, package: str, where: str) -> bool:
    """Whether a package is in the folder that the job runs in, or one of its PYTHONPATH."""
    folders = [job_paths.host_path(host, path) for path in (".", *host.pythonpath)]
    return any(where.startswith(posixpath.join(folder, package) + "/") for folder in folders)


def _is_in_config_folder(host: HostContext, path: str) -> bool:
    """Whether a bare name is a file in a folder of configurations that the program looks in.

    That is the folder of a module that knows its own (`__file__`), or one beside the program that
    its text names: then `--config default.yaml` is right wherever the job runs.
    """
    files = host.context.project_files
    if files.script is None or "/" in path:
        return False
    folder = os.path.dirname(os.path.abspath(files.script))
    names = [
        name
        for name in _CONFIG_FOLDERS
        for base in (folder, os.path.dirname(folder))
        if os.path.isfile(os.path.join(base, name, path))
    ]
    try:
        own = files.folders_of_mentions(b"__file__")
        is_named = any(files.any_mentions(f"{q}{n}{q}".encode()) for n in names for q in "\"'")
    except NotKnown:
        return False
    return is_named or any(os.path.isfile(os.path.join(place, path)) for place in own)


def _configs(host: HostContext) -> list[tuple[str, bool]]:
    """Return the configuration files that a job names, and whether its launcher reads them."""
    own = job_paths.launcher_files(host.job)
    files = job_paths.config_files(host.job)
    if files and host.context.project_files.mentions(b"hydra.main"):
        # `model=large.yaml` is an option of a group: `flags` looks for it in the config folder
        files = [path for path in files if "/" in path]
    files = [path for path in files if not _is_in_config_folder(host, path)]
    return [*((path, True) for path in own), *((path, False) for path in files)]


def _config_questions(host: HostContext) -> Iterator[Question]:
    for path, _ in _configs(host):
        yield ("path", path)
        if job_paths.is_glob(path):
            yield ("glob", path)


@check("configs", asks=_config_questions, quick=True)
def configs(host: HostContext) -> Iterator[Answer]:
    """Whether the configuration files that the arguments name exist."""
    existing = []
    for path, is_launchers in _configs(host):
        is_pattern = job_paths.is_glob(path)
        if job_paths.answer(host, "path", path)["kind"] is not None or (
            is_pattern and job_paths.glob_matches(host, path)[0]  # the program expands it
        ):
            existing.append(path)
            continue
        # `setup` may write it, and only the launcher certainly reads its own
        answer = fail if is_launchers and not host.plan.setup else warn
        option = "`launcher_args`" if is_launchers else "`args`"
        why = "nothing matches" if is_pattern else "does not exist"
        yield answer(f"{option} names {path}, which {why}", how_to_provide(host, path))
    if existing:
        verb = "exists" if len(existing) == 1 else "exist"
        yield ok(f"{', '.join(existing[:_SHOWN])} {verb}")


def _input_questions(host: HostContext) -> Iterator[Question]:
    for entry in host.job.inputs:
        yield ("path", entry.path)
        if job_paths.is_glob(entry.path):
            yield ("glob", entry.path)
    over = _divided_file(host)
    if over is not None:
        yield ("path", over)


def _divided_file(host: HostContext) -> str | None:
    """Return the file that is divided among the parts of the job."""
    plan = host.context.plan
    return None if plan is None or plan.fan_out is None else plan.fan_out.over


@check("inputs", asks=_input_questions, quick=True)
def inputs(host: HostContext) -> Iterator[Answer]:
    """Whether the paths of `inputs:` exist, of a glob exactly one, and that of `shards.over`."""
    over = _divided_file(host)
    if over is not None and job_paths.answer(host, "path", over)["kind"] != "file":
        # no failure: with `--after`, or as a step, an earlier run may write it
        what = f"`shards.over` ({host.job.origin('shards')}): there is no file {over}"
        yield warn(what, how_to_provide(host, over))
    existing: list[str] = []
    wrong: list[Answer] = []
    for entry in host.job.inputs:
        if job_paths.answer(host, "path", entry.path)["kind"] is not None:
            existing.append(entry.path)
        elif job_paths.is_glob(entry.path):
            count, matches = job_paths.glob_matches(host, entry.path)
            if count == 1:
                existing.append(matches[0] if matches else entry.path)
            else:
                wrong.append(_wrong_matches(host, entry, count, matches))
        else:
            what = f"`inputs` ({entry.origin}): {entry.path} does not exist"
            wrong.append(fail(what, how_to_provide(host, entry.path)))
    yield from wrong[:_SHOWN]
    if len(wrong) > _SHOWN:
        more = f"{len(wrong) - _SHOWN} more of `inputs` do not exist"
        yield fail(f"and {more}", "correct their paths in the same way")
    if existing:
        shown = ", ".join(existing[:_SHOWN])
        yield ok(f"{len(existing)} of {len(host.job.inputs)} exist: {shown}")


def _wrong_matches(host: HostContext, entry: Input, count: int, matches: list[str]) -> Answer:
    path, what = entry.path, f"`inputs` ({entry.origin}):"
    if count == 0:
        return fail(f"{what} nothing matches {path}", how_to_provide(host, path))
    more = f" and {count - _SHOWN} more" if count > _SHOWN else ""
    return fail(
        f"{what} {count} paths match {path}: {', '.join(matches[:_SHOWN])}{more}",
        f"write {matches[0]} instead, at {entry.origin}, or another of them",
    )


def _checkpoint_questions(host: HostContext) -> Iterator[Question]:
    paths = job_paths.checkpoints(host.job)
    paths += job_paths.output_folders(host) if _resumes_newest(host) else []
    return (("checkpoint", path) for path in paths)


def _resumes_newest(host: HostContext) -> bool:
    """Whether the trainer looks for the newest checkpoint in its own output folder."""
    is_on = job_options.is_on(job_options.options(host.job), "resume_from_checkpoint")
    return is_on and not host.context.project_files.resumes_by_itself


@check("resume", asks=_checkpoint_questions)
def resume(host: HostContext) -> Iterator[Answer]:
    """Whether the checkpoint that the job resumes from exists, and looks complete."""
    by_transformers = "resume_from_checkpoint" in job_options.options(host.job)
    # `--load X --save X` of Megatron and others; the first start finds nothing there
    saved = {job_paths.absolute(host, path) for path in job_paths.output_folders(host)}
    for path in job_paths.checkpoints(host.job):
        checkpoint = job_paths.answer(host, "checkpoint", path)
        is_own = job_paths.absolute(host, path) in saved and not by_transformers
        if checkpoint["kind"] is None and is_own:
            yield ok(f"{path} does not exist yet, and is where the job saves: it starts anew")
        elif by_transformers and checkpoint.get("states") and not checkpoint["trainer"]:
            yield warn(
                f"{path} has weights, but no trainer state: a job cannot resume from it",
                f"train from it as a model: `model_name_or_path: {path}` instead",
                "transformers Trainer: trainer_state.json",
            )
        else:
            yield _check_checkpoint(host, path, checkpoint)
    for path in job_paths.output_folders(host) if _resumes_newest(host) else ():
        checkpoint = host.answer("checkpoint", path)
        steps = [s for s in checkpoint.get("steps") or () if s.startswith("checkpoint-")]
        newest = max(steps, key=lambda name: (len(name), name), default="")
        if newest and newest in checkpoint.get("weightless", ()):
            yield _weightless(posixpath.join(path, newest))
        elif steps:
            yield ok(f"{path} has {', '.join(steps[-_SHOWN:])}")
        else:
            yield warn(
                f"`resume_from_checkpoint: true`, and {path} has no checkpoint-*",
                "remove `resume_from_checkpoint` from `args` for the first run; "
                f"restarts resume with `{RESUME_EXAMPLE}`",
                "transformers Trainer: `No valid checkpoint found in output directory`",
            )


def _check_checkpoint(host: HostContext, path: str, checkpoint: Mapping[str, Any]) -> Answer:
    if checkpoint["kind"] is None:
        return warn(f"the checkpoint {path} does not exist", how_to_provide(host, path))
    if checkpoint["kind"] == "folder":
        return _check_folder(path, checkpoint)
    flaw = checkpoint.get("flaw")
    return warn(f"{path} {flaw}", _INTERRUPTED) if flaw else ok(f"{path} exists")


def _weightless(path: str) -> Answer:
    what = f"{path} has trainer_state.json, and no file of a model"
    return warn(what, _INTERRUPTED, _NO_MODEL)


def _check_folder(path: str, checkpoint: Mapping[str, Any]) -> Answer:
    latest, steps = checkpoint["latest"], checkpoint["steps"]
    if latest is not None and not checkpoint.get("latest_found"):
        what = f"{path}/latest names {latest}, which is not in it"
        return warn(what, "resume from the previous checkpoint: this one was not saved completely")
    if checkpoint.get("flaw") and checkpoint["count"]:
        return warn(f"{path} {checkpoint['flaw']}", _INTERRUPTED)
    if "." in checkpoint.get("weightless", ()):
        return _weightless(path)
    if checkpoint["marks"] or checkpoint["states"]:
        states = f"{checkpoint['states']} files of states"
        return ok(f"{path} exists ({latest or ', '.join(checkpoint['marks'][:2]) or states})")
    if steps:
        newest = max(steps, key=lambda name: (len(name), name))
        what = f"{path} is no checkpoint, but contains some: {', '.join(steps[-_SHOWN:])}"
        return warn(what, f"name one of them: {posixpath.join(path, newest)}")
    what = "has no known file of a checkpoint" if checkpoint["count"] else "is empty"
    return warn(f"{path} {what}", _INTERRUPTED)
