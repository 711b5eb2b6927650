"""Checks what a `command:` runs: the file that it names, or a program on the PATH of the job."""

# ruff: noqa: PLC0415 - difflib: only where a program is missing

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch import launchers
from safelaunch.checks import job_options, job_paths
from safelaunch.checks.answers import OK, Answer, NotKnown, Question, fail, ok, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from safelaunch.checks.context import HostContext
    from safelaunch.model import Job

_SHELLS = re.compile(r"(ba|da|z)?sh|python[\d.]*")
_PROGRAM = re.compile(r"[\w./-]+\.(sh|py)")
# a line that can be split at its blanks: it has no characters that are special to the shell
_SEVERAL = re.compile(r"[\w./-]+( +[^\s\"'\\$`;&|<>()]+)+")
_SHEBANG = "execve(2): interpreter scripts"
_MAX_SHEBANG = 256  # bytes that the kernel reads of it: BINPRM_BUF_SIZE of binfmts.h
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(\S*)")


def questions(host: HostContext) -> Iterator[Question]:
    """Yield the questions about the command."""
    name, _ = file_of(host.job)
    if name is not None:
        yield ("path", name)
    shebang = _shebang(host)
    if shebang is not None and not shebang.is_broken:
        yield ("path", shebang.interpreter)
        yield from (("path", path) for path in _env_candidates(host, shebang))
    yield from (("path", path) for path in _candidates(host))


def check_command(host: HostContext) -> Answer | None:
    """Return what is wrong with the command, or what of it exists; None where nothing is known.

    `setup` may create files, and change PATH: it makes a warning of a failure.
    """
    file, program = _check_file(host), check_program(host)
    is_found = program is None or program.status == OK
    return file or program if is_found or (file is not None and file.status != OK) else program


def _answer(host: HostContext) -> Callable[..., Answer]:
    return warn if host.plan.setup else fail


def file_of(job: Job) -> tuple[str | None, bool]:
    """Return the file that a `command:` names, and whether it must be executable itself."""
    words = (*job.command, *(() if job.args.is_mapping else job.args.words))
    if launchers.load(job.launcher).RUNS_PYTHON or not job.command:
        return None, False
    if "/" in words[0] and re.fullmatch(r"[\w./-]+", words[0]):
        return words[0], True
    is_shell = len(words) > 1 and _SHELLS.fullmatch(words[0]) and _PROGRAM.fullmatch(words[1])
    return (words[1], False) if is_shell else (None, False)


def _check_file(host: HostContext) -> Answer | None:
    name, must_run = file_of(host.job)
    if name is None:
        return None
    file, answer = job_paths.answer(host, "path", name), _answer(host)
    if file["kind"] is None:
        what = f"`command:` runs {name}, which is not in {job_paths.absolute(host, host.cwd)}"
        return answer(what, job_paths.how_to_provide(host, name))
    if file["kind"] == "folder":
        return answer(f"`command:` runs {name}, which is a folder", "name a file in it")
    if must_run and not file.get("executable", True):
        return answer(f"{name} is not executable", f"`chmod a+x {job_paths.absolute(host, name)}`")
    return _check_shebang(host, name) or ok(f"{name} exists")


def _check_shebang(host: HostContext, name: str) -> Answer | None:
    """Return that the first line of a script names no interpreter."""
    shebang, answer = _shebang(host), _answer(host)
    if shebang is None:
        return None
    if shebang.is_broken:
        what = f"{name}:1: `{shebang.text}` ends with a carriage return: bad interpreter"
        return answer(what, f"save it with LF line ends: `sed -i 's/\\r$//' {name}`", _SHEBANG)
    if host.answer("path", shebang.interpreter)["kind"] is None:
        what = f"{name}:1: `{shebang.text}`: {shebang.interpreter} does not exist: bad interpreter"
        return answer(what, "correct that line, or install it", _SHEBANG)
    candidates = _env_candidates(host, shebang)
    if candidates and not any(_is_executable(host, path) for path in candidates):
        what = f"{name}:1: `{shebang.text}`: no program `{shebang.program}` on PATH"
        return answer(what, "correct that line, or install it", _SHEBANG)
    return None


def _env_candidates(host: HostContext, shebang: _Shebang) -> list[str]:
    """Return the paths at which `env` looks for a script's program; none where PATH is unknown."""
    if not shebang.interpreter.endswith("/env") or not re.fullmatch(r"[\w.+-]+", shebang.program):
        return []
    own = [posixpath.dirname(host.interpreter)] if host.interpreter else []
    folders = _search_path(host)
    return [posixpath.join(folder, shebang.program) for folder in (*folders, *own) if folders]


class _Shebang(NamedTuple):
    """The first line of a script, which names what runs it."""

    text: str
    interpreter: str
    program: str  # its first argument, which `env` looks for on PATH
    is_broken: bool  # the kernel takes a carriage return for a part of the name, or of an argument


def _shebang(host: HostContext) -> _Shebang | None:
    """Return the shebang of the command's own file; None without one, or where it is not known."""
    name, must_run = file_of(host.job)
    data = host.context.project_files.text(name) if name is not None and must_run else None
    if data is None or not data.startswith(b"#!"):
        return None
    line = data[2:].partition(b"\n")[0][:_MAX_SHEBANG].decode("utf-8", "replace")
    words = line.split()
    if not words or not words[0].startswith("/"):
        return None
    program = words[1] if len(words) > 1 and not words[1].startswith("-") else ""
    return _Shebang(f"#!{line.strip()}", words[0], program, line.endswith("\r"))


def _program_of(job: Job) -> str | None:
    """Return the program that bash looks for on PATH; None where it is a path, or not known.

    Of srun and the like it is they themselves: what they start may be on other machines.
    """
    launcher = launchers.load(job.launcher)
    words = job.prefix or ((job.launcher,) if launcher.PLACES_RANKS else job.command)
    if not words or (launcher.RUNS_PYTHON and not job.prefix):
        return None
    word = words[0]
    return None if "/" in word.partition(" ")[0] or re.search(r"[$`~\n]", word) else word


def _search_path(host: HostContext) -> list[str]:
    """Return the folders of the job's PATH; none where it is not known.

    The PATH of a remote job is that of a login shell, and the checks do not ask for it.
    """
    path = job_options.variable(host, "PATH") if host.is_local else None
    planned = host.plan.env.get("PATH")
    if path is not None and planned is not None and planned.prepend:
        path += ":" + job_options.inherited_environ(host).get("PATH", "")
    return [] if path is None or "$" in path else [folder or "." for folder in path.split(":")]


def _candidates(host: HostContext) -> list[str]:
    """Return the possible paths of the program: on PATH, and last beside the interpreter."""
    name, folders = _program_of(host.job), _search_path(host)
    if name is None or not folders:
        return []
    own = [posixpath.dirname(host.interpreter)] if host.interpreter else []
    return [posixpath.join(folder, name) for folder in (*folders, *own)]


def check_program(host: HostContext) -> Answer | None:
    """Return whether PATH has the program that is started; None where it is not known."""
    name, folders, candidates = _program_of(host.job), _search_path(host), _candidates(host)
    if name is None or not candidates:
        return None
    programs = [path for path in candidates if _is_executable(host, path)]
    on_path = [path for path in programs if path in candidates[: len(folders)]]
    if on_path:
        return ok(f"`{name}` is {on_path[0]}")
    key = "prefix" if host.job.prefix else "launcher" if host.job.launcher == name else "command"
    what = f"`{key}:` ({host.job.origin(key)}): no program `{name}` on PATH"
    hint = f"`{key}: [{programs[0]}, ...]`" if programs else _hint(host, key, name, folders)
    return _answer(host)(what, hint)


def _is_executable(host: HostContext, path: str) -> bool:
    try:
        file = job_paths.answer(host, "path", path)
    except NotKnown:
        return False
    return file["kind"] == "file" and bool(file.get("executable", True))


def _hint(host: HostContext, key: str, name: str, folders: list[str]) -> str:
    """Return what to write instead of a program that does not exist."""
    assignment = _ASSIGNMENT.fullmatch(name)
    if assignment is not None:
        return f"`env: {{{assignment[1]}: '{assignment[2]}'}}`, and the program first"
    if _SEVERAL.fullmatch(name):
        return f"each word by itself: `{key}: [{', '.join(name.split())}]`"
    import difflib

    names: set[str] = set()
    for folder in folders:
        with contextlib.suppress(OSError):
            names.update(os.listdir(folder))
    hint = f"install `{name}`, or name it with its folder: `{key}: [/.../{name}, ...]`"
    for match in difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.75):
        return f"did you mean `{match}`? else {hint}"
    if host.plan.setup:
        return f"{hint}; nothing to do if `setup:` puts it on PATH"
    return f"{hint}; if `module load` or the like provides it, add that to `setup:`"
