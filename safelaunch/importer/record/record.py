"""Records the launches of a script: it runs isolated, and stubs write down the calls."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.errors import StartError
from safelaunch.importer import activities
from safelaunch.importer.activities import ASSUMED
from safelaunch.importer.findings import Findings, Note, Unresolved
from safelaunch.importer.record.covers import programs_to_cover, real_python
from safelaunch.importer.record.recording import (
    INHERITED,
    PATH,
    Recording,
    does_without,
    is_made_of_output,
    is_tested,
    names_that_may_be_unset,
)
from safelaunch.importer.record.repetition import LATER_DATE, mark_differing, may_differ
from safelaunch.importer.record.stubs import MACHINE_PROGRAMS, stub_files
from safelaunch.importer.record.trap import Trap
from safelaunch.importer.start_folders import starts_above
from safelaunch.importer.state import SEARCH_PATHS
from safelaunch.importer.syntax import read_script

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.importer.state import ScriptCaller

SECONDS = 20  # of the whole script; its launches are stubs, and what it downloads is left out
_MOST_PROCESSES = 200
_SANDBOX = os.path.join(os.path.dirname(__file__), "sandbox.py")
_SYSTEM = frozenset((
    "/bin", "/boot", "/dev", "/etc", "/proc", "/run", "/sbin", "/sys", "/usr", "/snap", "/var",
))  # fmt: skip
# of the user, who may have secrets in them: a recording sees them empty
_STARTUP_FILES = (".bashrc", ".bash_profile", ".bash_login", ".profile", ".zshrc")
_ERROR_TRAP = re.compile(r"\btrap\b.*\bERR\b")
_ALIAS = re.compile(r"\s*alias\s+\w+=")
_LONGEST_SOURCE = 1 << 20
_FIRST_NUMBER = 211  # of values that are not set: none ends a loop late


def record(script: str, caller: ScriptCaller, seconds: int = SECONDS) -> Findings:
    """Return the launches that a script makes when it runs. Raises StartError without isolation.

    Where it reaches none as it is called, the first way in which it does is assumed, and noted.
    """
    text = read_script(script)
    attempt = _Setup(script, caller)
    findings = _record(attempt, text, seconds)
    needs_arguments = any((p.name or "").startswith("$") for p in findings.problems)
    for other in _starts_with(findings.absent, attempt):
        others = _record(other, text, seconds)
        if others.launches and not others.absent:
            others.notes[:0] = other.notes
            return _completed(others, other, text, seconds)
    if findings.launches or needs_arguments or findings.is_cut_off:
        return _completed(findings, attempt, text, seconds)
    deadline = time.monotonic() + seconds  # for the beginning of other attempts
    for other in _attempts(attempt, text):
        if time.monotonic() > deadline:
            break
        others = _record(other, text, seconds)
        if others.launches or (others.problems and not findings.problems):
            others.notes[:0] = other.notes
            return _completed(others, other, text, seconds)
    return findings


def _starts_with(absent: Sequence[str], first: _Setup) -> Iterator[_Setup]:
    """Yield the starts from folders above a script that have the files which it sources."""
    if not absent:
        return
    for start in starts_above(first.script, first.caller, f"`{absent[0]}` is not there"):
        folder = start.caller.folder
        if all(os.path.isfile(os.path.join(folder, path)) for path in absent):
            yield _Setup(start.script, start.caller, notes=(start.note,))


def _completed(findings: Findings, attempt: _Setup, text: str, seconds: int) -> Findings:
    """Add what is asked for, and else what differs at each start, as a second recording shows."""
    findings = _with_questions(findings, attempt, text, seconds)
    is_final = bool(findings.launches) and not findings.problems and findings.stop is None
    texts = [text, *filter(None, map(_content, findings.sources))]
    if is_final and may_differ(texts):
        other = _record(attempt._replace(is_repeated=True), text, seconds)
        mark_differing(findings, other, attempt.caller.environ)
    return findings


class _Setup(NamedTuple):
    """A way to start a script, and what is assumed with it."""

    script: str
    caller: ScriptCaller
    is_lenient: bool = False
    is_repeated: bool = False  # at another time
    notes: tuple[Note, ...] = ()


def _attempts(first: _Setup, text: str) -> Iterator[_Setup]:
    """Yield other ways to start a script: from the folders above it, and as its user types it."""
    caller = first.caller
    starts = starts_above(first.script, caller, "it starts nothing from here")
    attempts = [first, *(_Setup(s.script, s.caller, notes=(s.note,)) for s in starts)]
    yield from attempts[1:]
    lines = [number for number, line in enumerate(text.splitlines(), 1) if _ALIAS.match(line)]
    outcome = f"{ASSUMED} that you source it there; bash expands none in a script"
    notes = [Note(line, "defines an alias for your shell", outcome) for line in lines]
    if notes or re.search(r"\b(cd|pushd)\s|\bset\s+-\w*[eo]|^#!.*\s-\w*e", text):
        for attempt in attempts[:2]:
            yield attempt._replace(is_lenient=True, notes=(*attempt.notes, *notes))


def _with_questions(findings: Findings, attempt: _Setup, text: str, seconds: int) -> Findings:
    """Add a question for each value that is not set and stands in a launch, else a note.

    Which do is seen in further recordings, where each has a number that is in no launch yet.
    """
    caller = attempt.caller
    settled = {*caller.answers, *INHERITED, *(name for name in SEARCH_PATHS)}
    texts = [text, *filter(None, map(_content, findings.sources))]
    whole = "\n".join(texts)
    own = names_that_may_be_unset(whole)
    last = text.count("\n") + 1
    names = {n: at for n, (at, _) in own.items() if n not in settled and at <= last}
    unanswered = {
        name: why
        for name, why in findings.unanswered.items()
        if not does_without(
            name, re.sub(rf"\b{name}=\S*\$\{{{name}:?-[^}}\n]*(\$\(|`).*", "", whole)
        )
    }
    names |= {name: why.line for name, why in unanswered.items()}
    questions = {p.name for p in findings.problems}
    has_arguments = bool(findings.placeholders)
    if not names or not findings.launches or findings.stop is not None:
        return findings
    shown = "\0".join(_texts(findings, {}))
    free = (str(n) for n in range(_FIRST_NUMBER, 10**6, 2) if str(n) not in shown)
    numbers = dict(zip(names, free, strict=False))
    used = ""
    # what a program prints is no less of a launch where the script exports it itself
    exported = {name for launch in findings.launches for name in launch.env} & unanswered.keys()
    values = {name: number for name, number in numbers.items() if name not in exported}
    # those that the script tests by themselves: they change its way to the others
    tested = {name for name in names if name in own and is_tested(name, whole)}
    for group in filter(None, (names.keys() - tested, tested)):
        marks = {name: numbers[name] for name in numbers if name in group}
        marked = replace(caller, answers={**marks, **caller.answers})
        other = _record(attempt._replace(caller=marked), text, seconds)
        used = "\0".join((used, *_texts(other, values)))
    for name, line in names.items():
        is_set_elsewhere = name in own and own[name][1] and name not in unanswered
        if is_set_elsewhere and has_arguments:  # perhaps where these are given
            continue
        number = rf"(?<!\d){numbers[name]}(?!\d)"
        if is_set_elsewhere:  # empty is what a word alone is meant to be, but no value
            number = rf"{number}(?!\0)|[^\0\d]{number}|(?:^|\0)-[^\0=]*\0{number}"
        if re.search(number, used):
            if name not in questions:
                unset = Unresolved(f"`{name}` is not set in the script", line, name)
                findings.problem(unanswered.get(name, unset))
        elif name not in unanswered and not is_set_elsewhere:
            findings.note(line, f"`{name}` is not set", f"{ASSUMED}; else `--set {name}=VALUE`")
    return findings


def _content(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_LONGEST_SOURCE)
    except OSError:
        return None


def _texts(findings: Findings, values: Mapping[str, str]) -> Iterator[str]:
    """Yield the words, values and folders of launches, but for variables with these values."""
    for launch in findings.launches:
        yield from launch.words
        yield from (
            f"{name}={value}"
            for name, value in launch.env.items()
            if value is not None and values.get(name) != value
        )
        yield launch.folder


def _record(attempt: _Setup, text: str, seconds: int) -> Findings:
    script, caller = attempt.script, attempt.caller
    if sys.platform != "linux":
        raise StartError("`--record` needs the namespaces of Linux", hint="import without it")
    bash = shutil.which("bash", path=PATH)
    if bash is None:
        raise StartError("`--record` needs bash")
    place = _make_place()
    try:
        spec = _specification(attempt, text, os.path.realpath(place), bash)
        spec["seconds"] = seconds
        answer = _run(spec)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if "error" in answer:
        raise StartError(
            f"the script was not run, since it cannot be isolated: {answer['error']}",
            hint="import it without `--record`, or on a machine with user namespaces",
        )
    return Recording(text, script, caller, spec).findings(answer)


def _make_place() -> str:
    """Return a new folder, in whose path a shell reads no character as its own."""
    place = tempfile.mkdtemp(prefix="safelaunch-record-")
    if re.fullmatch(r"[\w/.+-]+", place, re.ASCII):
        return place
    os.rmdir(place)
    return tempfile.mkdtemp(prefix="safelaunch-record-", dir="/tmp")


def _specification(attempt: _Setup, text: str, place: str, bash: str) -> dict[str, Any]:
    caller = attempt.caller
    home = caller.environ.get("HOME", "/")
    stubs = os.path.join(place, "stubs")
    path = caller.environ.get("PATH", PATH)
    names = (*activities.WRAPPERS, *MACHINE_PROGRAMS)
    programs = {name: p for name in names if (p := shutil.which(name, path=path))}
    programs["python3"] = real_python(path)
    env = {name: caller.environ[name] for name in INHERITED if name in caller.environ}
    env |= {"PATH": f"{stubs}:{PATH}", "TERM": "dumb", "SHELL": bash}
    env |= {n: v for n, v in caller.answers.items() if not is_made_of_output(n, text)}
    env["BASH_ENV"] = os.path.join(place, "bash_env")
    covered = programs_to_cover(text, caller)
    folders = _folders_to_make(attempt.script, text) if attempt.is_lenient else None
    files = {"stubs/date": LATER_DATE.format(bash=bash)} if attempt.is_repeated else {}
    trap = Trap(caller.answers, folders, _ERROR_TRAP.search(text) is not None)
    return {
        "place": place,
        "argv": [bash, attempt.script, *caller.arguments],
        "env": env,
        "folder": caller.folder,
        "project": project_root(caller.folder),
        "writable": _writable(caller.folder, home, text),
        "covered": covered,
        "empty": [p for n in _STARTUP_FILES if os.path.isfile(p := os.path.join(home, n))],
        "files": {**stub_files(place, bash, programs, covered, trap), **files},
        "answers": sorted(caller.answers),
        "processes": _MOST_PROCESSES,
    }


def _folders_to_make(script: str, text: str) -> list[tuple[str, str]]:
    """Return absolute folders to which a script changes, with where that stands, for the stubs."""
    values = dict(re.findall(r"^\s*(?:export +)?(\w+)=[\"']?(/[\w./-]+)", text, re.MULTILINE))
    folders = []
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"\s*(?:cd|pushd)\s+[\"']?(?:\$\{?(\w+)\}?|(/[\w./-]+))", line)
        path = (match[2] or values.get(match[1])) if match is not None else None
        if path is not None:
            folders.append((f"{number}:{script}", path))
    return folders


def _writable(folder: str, home: str, text: str) -> list[str]:
    """Return the folders that should get a scratch layer, the outer ones first."""
    named = {f"/{name}" for name in re.findall(r"(?<![\w.}/-])/([\w.-]+)(?=/|\b)", text)}
    others = [path for path in named if path not in _SYSTEM and not path.startswith("/lib")]
    paths = ("/tmp", "/var/tmp", home, project_root(folder), *others)  # noqa: S108 - what scripts write to
    real = {os.path.realpath(path) for path in paths}
    return sorted((path for path in real if path != "/" and os.path.isdir(path)), key=len)


def project_root(folder: str) -> str:
    """Return the nearest folder with `.git` above; else the folder itself."""
    path = os.path.realpath(folder)
    while not os.path.exists(os.path.join(path, ".git")):
        parent = os.path.dirname(path)
        if parent == path:
            return os.path.realpath(folder)
        path = parent
    return path


def _run(spec: dict[str, Any]) -> dict[str, Any]:
    path = f"{spec['place']}.json"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(spec, file)
        done = subprocess.run(
            [sys.executable, "-I", "-S", _SANDBOX, path],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS + 20, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": "the isolation did not answer"}
    finally:
        os.unlink(path)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        return {"error": " ".join(last) or f"its process ended with {done.returncode}"}
    return answer
