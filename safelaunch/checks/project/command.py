"""What a `command:` runs: the file that it names, or a program on the PATH of the job."""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from typing import TYPE_CHECKING

from safelaunch import launchers
from safelaunch.checks import job_options, job_paths
from safelaunch.checks.answers import OK, Answer, NotKnown, Question, fail, ok, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from safelaunch.checks.context import HostContext
    from safelaunch.model import Job

_SHELLS = re.compile(r"(ba|da|z)?sh|python[\d.]*")
_PROGRAM = re.compile(r"[\w./-]+\.(sh|py)")
# a line that can be split at its blanks: nothing in it is the shell's
_SEVERAL = re.compile(r"[\w./-]+( +[^\s\"'\\$`;&|<>()]+)+")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(\S*)")


def questions(host: HostContext) -> Iterator[Question]:
    """Yield what is asked of the machine about the command."""
    name, _ = _file_of(host.job)
    if name is not None:
        yield ("path", name)
    yield from (("path", path) for path in _candidates(host))


def check_command(host: HostContext) -> Answer | None:
    """Return what is wrong with the command, or what of it is there; None where nobody can say.

    `setup` may bring files, and change PATH: it makes a warning of a failure.
    """
    file, program = _file(host), _program(host)
    is_found = program is None or program.status == OK
    return file or program if is_found or (file is not None and file.status != OK) else program


# -- a file ----------------------------------------------------------------------------------------


def _file_of(job: Job) -> tuple[str | None, bool]:
    """Return the file that a `command:` names, and whether it must be executable itself."""
    words = (*job.command, *(() if job.args.is_mapping else job.args.words))
    if launchers.load(job.launcher).RUNS_PYTHON or not words:
        return None, False
    if "/" in words[0] and re.fullmatch(r"[\w./-]+", words[0]):
        return words[0], True
    is_shell = len(words) > 1 and _SHELLS.fullmatch(words[0]) and _PROGRAM.fullmatch(words[1])
    return (words[1], False) if is_shell else (None, False)


def _file(host: HostContext) -> Answer | None:
    name, must_run = _file_of(host.job)
    if name is None:
        return None
    told, answer = job_paths.answer(host, "path", name), _answer(host)
    if told["kind"] is None:
        from safelaunch.checks.job_paths import how_to_provide  # noqa: PLC0415

        where = job_paths.absolute(host, host.cwd)
        return answer(
            f"`command:` runs {name}, which is not in {where}", how_to_provide(host, name)
        )
    if told["kind"] == "folder":
        return answer(f"`command:` runs {name}, which is a folder", "name a file in it")
    if must_run and not told.get("executable", True):
        return answer(f"{name} is not executable", f"`chmod a+x {job_paths.absolute(host, name)}`")
    return ok(f"{name} is there")


def _answer(host: HostContext) -> Callable[[str, str], Answer]:
    return warn if host.plan.setup else fail


# -- a program -------------------------------------------------------------------------------------


def _program_of(host: HostContext) -> str | None:
    """Return the program that bash looks for on PATH; None where it is a path, or not known."""
    job = host.job
    if launchers.load(job.launcher).RUNS_PYTHON or not job.command:
        return None
    word = job.command[0]
    return None if "/" in word.partition(" ")[0] or re.search(r"[$`~\n]", word) else word


def _search_path(host: HostContext) -> list[str]:
    """Return the folders of the job's PATH; none where that is not known before the machine is.

    A login shell of a host makes its PATH, and nobody is asked for it before the checks.
    """
    found = job_options.variable(host, "PATH") if host.is_local else None
    return [] if found is None or "$" in found else [one or "." for one in found.split(":")]


def _candidates(host: HostContext) -> list[str]:
    """Return where the program may lie: on PATH, and last beside the job's own interpreter."""
    name, folders = _program_of(host), _search_path(host)
    if name is None or not folders:
        return []
    own = [posixpath.dirname(host.interpreter)] if host.interpreter else []
    return [posixpath.join(folder, name) for folder in (*folders, *own)]


def _program(host: HostContext) -> Answer | None:
    name, folders, candidates = _program_of(host), _search_path(host), _candidates(host)
    if name is None or not candidates:
        return None
    there = [path for path in candidates if _runs(host, path)]
    on_path = [path for path in there if path in candidates[: len(folders)]]
    if on_path:
        return ok(f"`{name}` is {on_path[0]}")
    line = f"`command: [{', '.join((there or [name])[:1])}, ...]`"
    what = f"`command:` ({host.job.origin('command')}): no program `{name}` on PATH"
    return _answer(host)(what, _cure(host, name, folders) if not there else line)


def _runs(host: HostContext, path: str) -> bool:
    try:
        told = job_paths.answer(host, "path", path)
    except NotKnown:
        return False
    return told["kind"] == "file" and bool(told.get("executable", True))


def _cure(host: HostContext, name: str, folders: list[str]) -> str:
    """Return what to write instead of a program that is nowhere."""
    assigned = _ASSIGNED.fullmatch(name)
    if assigned is not None:
        return f"`env: {{{assigned[1]}: '{assigned[2]}'}}`, and the program first in `command:`"
    if _SEVERAL.fullmatch(name):
        words = ", ".join(name.split())
        return f"each word by itself: `command: [{words}]`"
    near = _near(name, folders)
    hint = f"install `{name}`, or name it with its folder: `command: [/.../{name}, ...]`"
    if near:
        return f"did you mean `{near}`? else {hint}"
    if host.plan.setup:
        return f"{hint}; nothing to do where `setup:` puts it on PATH"
    return f"{hint}; where `module load` or the like brings it, say so under `setup:`"


def _near(name: str, folders: list[str]) -> str | None:
    """Return the program on PATH that is most like a name."""
    import difflib  # noqa: PLC0415 - where something is missing

    found: set[str] = set()
    for folder in folders:
        with contextlib.suppress(OSError):
            found.update(os.listdir(folder))
    return next(iter(difflib.get_close_matches(name, sorted(found), n=1, cutoff=0.75)), None)
