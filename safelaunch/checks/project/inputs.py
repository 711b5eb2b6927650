"""Checks of what a job reads: its program, configurations, inputs, a checkpoint to go on from."""

from __future__ import annotations

import posixpath
import sys
from typing import TYPE_CHECKING, Any

from safelaunch.checks import job_options, job_paths
from safelaunch.checks.answers import Answer, Question, fail, ok, warn
from safelaunch.checks.job_paths import how_to_provide
from safelaunch.checks.project import command
from safelaunch.checks.registry import check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from safelaunch.checks.context import HostContext
    from safelaunch.model import Input

_SHOWN = 5  # of several paths


# -- the program -----------------------------------------------------------------------------------


@check("workdir", "project", asks=lambda _: [("path", ".")])
def workdir(host: HostContext) -> Answer | None:
    """Whether the folder that the job runs in is there: a start refuses without.

    A host gets the project's own with the project.
    """
    if job_paths.local_source(host, ".") is not None:
        return None
    kind, folder = host.answer("path", ".")["kind"], job_paths.absolute(host, host.cwd)
    if kind == "folder":
        return ok(f"{folder} is there")
    what = "does not exist" if kind is None else "is no folder"
    origin = host.job.origins.get("workdir")
    where = "of the host's entry" if origin is None else f"({origin})"
    near = job_paths.closest_name(host, host.cwd) if host.is_local else None
    hint = f"did you mean `{near}`? else correct it" if near else "correct it"
    return fail(f"`workdir` {where}: {folder} {what}", f"{hint}, or `mkdir -p {folder}`")


def _script(host: HostContext) -> Iterable[Question]:
    script = host.job.script
    return command.questions(host) if script is None else [("path", script)]


@check("script", "project", asks=_script)
def script(host: HostContext) -> Answer | None:
    """Whether the job's script, or what its `command:` runs, is there, and can be read."""
    if host.job.script is None:
        return command.check_command(host)
    name = host.job.script
    told = job_paths.answer(host, "path", name)
    if told["kind"] == "file" and told.get("readable", True):
        return _syntax(host) or ok(f"{name} is there")
    where = job_paths.absolute(host, host.cwd)
    if told["kind"] == "folder":
        return fail(f"script `{name}` is a folder", "name a file in it, or use `module:`")
    if told["kind"] is None:
        link = f", a link to {told['link']}" if told.get("link") else ""
        what = f"script `{name}`{link} does not exist in {where}"
        said_at = host.job.origin("script")
        return fail(
            what, f"`script:` ({said_at}) is relative to `workdir:`; {how_to_provide(host, name)}"
        )
    return fail(
        f"script `{name}` cannot be read",
        f"`chmod a+r {job_paths.absolute(host, name)}`, as its owner",
    )


def _syntax(host: HostContext) -> Answer | None:
    """Return a warning where Python cannot parse the script.

    A newer Python than the one here may know more syntax, so of that nothing is said.
    """
    version, reading = str(host.get("python", "version") or ""), host.context.project_files
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if not numbers or numbers > sys.version_info[:2] or reading.script is None:
        return None
    wrong = reading.syntax_error
    if wrong is None:
        return None
    line, why = wrong
    return warn(f"{host.job.script}:{line}: {why}: Python {version} does not start it",
                "correct that line")  # fmt: skip


def _module(host: HostContext) -> Iterable[Question]:
    name = host.job.module
    if name is None:
        return []
    asked = [("path", path) for _, path in _places(host, name)]
    return [("module", name.split(".")[0]), *asked, ("path", _files(name)[2])]


def _files(module: str) -> list[str]:
    """Return where `python -m` finds a module below the working folder."""
    at = module.replace(".", "/")
    return [f"{at}.py", f"{at}/__main__.py", module.split(".", 1)[0]]


def _places(host: HostContext, module: str) -> list[tuple[str, str]]:
    """Return (name, path) of the files that `python -m` runs, as PYTHONPATH orders them."""
    at, main, _ = _files(module)
    folders = ("", *host.pythonpath)
    return [(file, posixpath.join(folder, file)) for folder in folders for file in (at, main)]


@check("module", "project", asks=_module, quick=True)
def module(host: HostContext) -> Answer | None:
    """Whether the job's module is found, installed or in the project."""
    name = host.job.module
    if name is None:
        return None
    at, main, top = _files(name)
    for file, path in _places(host, name):
        if job_paths.answer(host, "path", path)["kind"] is not None:
            return ok(f"{name} is {file}")
    found = host.answer("module", name.split(".")[0])
    local = job_paths.answer(host, "path", top)
    if found["found"] and not _is_projects(host, top, found["where"] or ""):
        return ok(f"{name.split('.')[0]} is {found['where'] or 'built in'}")
    if found["found"] or local["kind"] == "folder":  # a part of it may be made, or compiled
        hint = f"`module:` names a file in {top}, or {main} is to be brought"
        near = job_paths.closest_name(host, at) or ""
        if near.endswith(".py"):
            hint = f"`module: {near[:-3].replace('/', '.')}`, or bring {at}"
        return warn(f"module `{name}`: neither {at} nor {main} is there", hint)
    # `setup` lines may change PYTHONPATH
    answer = warn if host.plan.setup else fail
    hint = "`pythonpath:` names the folder that holds it; or install it into the job's interpreter"
    return answer(f"module `{name}` is not found", hint)


def _is_projects(host: HostContext, package: str, where: str) -> bool:
    """Whether a package is found in the folder that the job runs in, or one of its PYTHONPATH."""
    folders = [job_paths.host_path(host, path) for path in (".", *host.pythonpath)]
    return any(where.startswith(posixpath.join(folder, package) + "/") for folder in folders)


# -- configurations --------------------------------------------------------------------------------


def _configs(host: HostContext) -> list[tuple[str, bool]]:
    """Return the configuration files that a job names, and whether its launcher reads them."""
    job = host.job
    given = job_options.parse(job.launcher_args)
    own = [given[name][0] for name in ("config_file", "deepspeed_config_file") if given.get(name)]
    return [
        *((path, True) for path in own),
        *((path, False) for path in job_paths.config_files(job)),
    ]


@check(
    "configs",
    "project",
    asks=lambda host: [("path", path) for path, _ in _configs(host)],
    quick=True,
)
def configs(host: HostContext) -> Iterator[Answer]:
    """Whether the configuration files that the arguments name are there."""
    there = []
    for path, is_launchers in _configs(host):
        told = job_paths.answer(host, "path", path)
        if told["kind"] is not None:
            there.append(path)
            continue
        # `setup` may write it, and only the launcher reads its own for sure
        answer = fail if is_launchers and not host.plan.setup else warn
        option = "`launcher_args`" if is_launchers else "`args`"
        yield answer(f"{option} names {path}, which is not there", how_to_provide(host, path))
    if there:
        yield ok(f"{', '.join(there[:_SHOWN])} {'is' if len(there) == 1 else 'are'} there")


# -- inputs ----------------------------------------------------------------------------------------


def _inputs(host: HostContext) -> Iterator[Question]:
    for one in host.job.inputs:
        yield ("path", one.path)
        if job_paths.is_glob(one.path):
            yield ("glob", one.path)


@check("inputs", "project", asks=_inputs, quick=True)
def inputs(host: HostContext) -> Iterator[Answer]:
    """Whether what `inputs:` names is there, a glob exactly once."""
    there: list[str] = []
    wrong: list[Answer] = []
    for one in host.job.inputs:
        if job_paths.answer(host, "path", one.path)["kind"] is not None:
            there.append(one.path)
        elif job_paths.is_glob(one.path):
            count, found = job_paths.glob_matches(host, one.path)
            if count == 1:
                there.append(found[0] if found else one.path)
            else:
                wrong.append(_not_one(host, one, count, found))
        else:
            what = f"`inputs` ({one.origin}): {one.path} is not there"
            wrong.append(fail(what, how_to_provide(host, one.path)))
    yield from wrong[:_SHOWN]
    if len(wrong) > _SHOWN:
        yield fail(f"and {len(wrong) - _SHOWN} more of `inputs` are not there", "as those above")
    if there:
        shown = ", ".join(there[:_SHOWN])
        yield ok(f"{len(there)} of {len(host.job.inputs)} there: {shown}")


def _not_one(host: HostContext, one: Input, count: int, found: list[str]) -> Answer:
    if count == 0:
        return fail(
            f"`inputs` ({one.origin}): nothing fits {one.path}", how_to_provide(host, one.path)
        )
    more = f" and {count - _SHOWN} more" if count > _SHOWN else ""
    what = f"{count} paths fit {one.path}: {', '.join(found[:_SHOWN])}{more}"
    hint = f"write {found[0]} instead, at {one.origin}, or whichever is meant"
    return fail(f"`inputs` ({one.origin}): {what}", hint)


# -- checkpoints -----------------------------------------------------------------------------------


def _resumes(host: HostContext) -> Iterator[Question]:
    for path in job_paths.checkpoints(host.job):
        yield ("checkpoint", path)
    if _wants_last(host):
        yield from (("checkpoint", path) for path in job_paths.output_folders(host))


def _wants_last(host: HostContext) -> bool:
    """Whether the trainer looks for the newest checkpoint in its own output folder."""
    given = job_options.options(host.job)
    return "resume_from_checkpoint" in given and job_options.is_on(given, "resume_from_checkpoint")


@check("resume", "project", asks=_resumes)
def resume(host: HostContext) -> Iterator[Answer]:
    """Whether the checkpoint that the job goes on from is there, and looks whole."""
    by_transformers = "resume_from_checkpoint" in job_options.options(host.job)
    for path in job_paths.checkpoints(host.job):
        told = job_paths.answer(host, "checkpoint", path)
        if by_transformers and told.get("states") and not told["trainer"]:
            yield warn(
                f"{path} has weights, but no state of a trainer: nothing can be gone on from",
                f"train from it as a model: `model_name_or_path: {path}` instead",
                "transformers Trainer: trainer_state.json",
            )
        else:
            yield _checkpoint(host, path, told)
    if _wants_last(host):
        for path in job_paths.output_folders(host):
            told = host.answer("checkpoint", path)
            steps = [one for one in told.get("steps") or [] if one.startswith("checkpoint-")]
            if steps:
                yield ok(f"{path} holds {', '.join(steps[-_SHOWN:])}")
            else:
                yield warn(
                    f"`resume_from_checkpoint: true`, and {path} holds no checkpoint-*",
                    "take `resume_from_checkpoint` out of `args` for the first run; "
                    "`recovery: {resume_args: {resume_from_checkpoint: true}}` is for restarts",
                    "transformers Trainer: `No valid checkpoint found in output directory`",
                )


def _checkpoint(host: HostContext, path: str, told: Mapping[str, Any]) -> Answer:
    if told["kind"] is None:
        return warn(f"the checkpoint {path} is not there", how_to_provide(host, path))
    if told["kind"] != "folder":
        return ok(f"{path} is there")
    if told["latest"] is not None and not told.get("latest_found"):
        what = f"{path}/latest names {told['latest']}, which is not in it"
        return warn(what, "go on from the checkpoint before it: this one was not saved to its end")
    if told["marks"] or told["states"]:
        shown = (
            told["latest"] or ", ".join(told["marks"][:2]) or f"{told['states']} files of states"
        )
        return ok(f"{path} is there ({shown})")
    if told["steps"]:
        newest = max(told["steps"], key=lambda name: (len(name), name))
        what = f"{path} is no checkpoint, but holds some: {', '.join(told['steps'][-_SHOWN:])}"
        return warn(what, f"name one of them: {posixpath.join(path, newest)}")
    what = "is empty" if not told["count"] else "holds no file of a checkpoint that is known"
    return warn(f"{path} {what}", "go on from another one; an unfinished save leaves such folders")
