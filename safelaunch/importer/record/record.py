"""Records the launches of a script: it runs isolated, and stubs write down the calls."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from safelaunch.errors import StartError
from safelaunch.importer import activities
from safelaunch.importer.activities import ASSUMED, NOTHING
from safelaunch.importer.findings import Findings, ScriptLaunch, Stop
from safelaunch.importer.record.stubs import PYTHONS, stub_files
from safelaunch.importer.state import CALLER_VALUE
from safelaunch.importer.syntax import read_script

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.importer.state import ScriptCaller

SECONDS = 20  # of the whole script; its launches are stubs, and what it downloads is left out
_LONGEST_COMMAND = 60  # lines
_MOST_PROCESSES = 200
_SANDBOX = os.path.join(os.path.dirname(__file__), "sandbox.py")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OWN = frozenset(("PWD", "OLDPWD", "SHLVL", "_", "BASH_ENV"))
_INHERITED = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE")


def record(script: str, caller: ScriptCaller, seconds: int = SECONDS) -> Findings:
    """Return the launches that a script makes when it runs. Raises StartError without isolation."""
    text = read_script(script)
    if sys.platform != "linux":
        raise StartError("`--record` needs the namespaces of Linux", hint="import without it")
    bash = shutil.which("bash", path=_PATH)
    if bash is None:
        raise StartError("`--record` needs bash")
    place = tempfile.mkdtemp(prefix="safelaunch-record-")
    try:
        spec = _specification(script, text, caller, os.path.realpath(place), bash)
        spec["seconds"] = seconds
        answer = _run(spec)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if "error" in answer:
        raise StartError(
            f"the script was not run, since it cannot be isolated: {answer['error']}",
            hint="import it without `--record`, or on a machine with user namespaces",
        )
    return _findings(text, answer, spec)


def _specification(
    script: str, text: str, caller: ScriptCaller, place: str, bash: str
) -> dict[str, Any]:
    home = caller.environ.get("HOME", "/")
    stubs = os.path.join(place, "stubs")
    path = caller.environ.get("PATH", _PATH)
    programs = {
        n: p for n in (*activities.WRAPPERS, "python3") if (p := shutil.which(n, path=path))
    }
    env = {name: caller.environ[name] for name in _INHERITED if name in caller.environ}
    env |= {"PATH": f"{stubs}:{_PATH}", "TERM": "dumb", "SHELL": bash}
    env |= {**caller.answers, "BASH_ENV": os.path.join(place, "bash_env")}
    return {
        "place": place,
        "argv": [bash, script, *caller.arguments],
        "env": env,
        "folder": caller.folder,
        "project": project_root(caller.folder),
        "writable": _writable(caller.folder, home),
        "replaced": _absolute_launchers(text),
        "files": stub_files(place, programs),
        "answers": sorted(caller.answers),
        "processes": _MOST_PROCESSES,
    }


def _writable(folder: str, home: str) -> list[str]:
    """Return the folders that should get a scratch layer, the outer ones first."""
    paths = ("/tmp", "/var/tmp", home, project_root(folder))  # noqa: S108 - what scripts write to
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


def _absolute_launchers(text: str) -> list[str]:
    """Return launchers that the script names by an absolute path: stubs are put over them."""
    names = "|".join(map(re.escape, (*activities.launcher_names(), *PYTHONS)))
    paths = re.findall(rf"(?<![\w./-])(/[\w./+-]+/(?:{names}))(?![\w.-])", text)
    return sorted({path for path in paths if os.path.isfile(path)})


def _run(spec: dict[str, Any]) -> dict[str, Any]:
    path = f"{spec['place']}.json"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(spec, file)
        done = subprocess.run(
            [sys.executable, "-I", _SANDBOX, path],
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


def _findings(text: str, answer: Mapping[str, Any], spec: Mapping[str, Any]) -> Findings:
    findings = Findings()
    no_ops: list[str] = []
    for raw in answer["calls"]:
        content = raw.encode("latin-1").decode("utf-8", "surrogateescape")
        if "\0" in content:
            _add_call(content, findings, text, spec)
        else:
            no_ops += content.split()
    for name in sorted(set(no_ops)):
        line = _line_of(text, [name])
        findings.note(line, f"runs `{name}`", "left out; it answered nothing")
    _note_unreached(text, findings)
    line = text.count("\n") or 1
    if answer["limit"] is not None:
        limits = {"time": f"{spec['seconds']} s", "processes": f"{_MOST_PROCESSES} processes"}
        reason = f"it took more than {limits[answer['limit']]} and was ended"
        findings.stop = Stop(reason, line, "import it without `--record`")
    elif answer["status"]:
        how = f"exit code {answer['status']}" if answer["status"] > 0 else "a signal"
        last = " ".join(answer["output"].split())[-160:]
        ended = f"it ended with {how}: {last}" if last else f"it ended with {how}"
        findings.note(line, ended, f"{ASSUMED} that no launch comes behind")
        if not findings.launches:
            findings.stop = Stop(f"it ended with {how} before a launch: {last}", line)
    return findings


def _add_call(content: str, findings: Findings, text: str, spec: Mapping[str, Any]) -> None:
    folder, count, *parts = content.split("\0")
    words, environment = parts[: int(count) + 1], parts[int(count) + 1 :]
    line = _line_of(text, words)
    if not activities.is_launch(words):
        shown = activities.describe(words)
        action = activities.find_action(words)
        outcome = action.outcome if action is not None else NOTHING
        findings.note(line, f"runs `{shown}`", outcome)
        return
    env = dict(item.split("=", 1) for item in environment if "=" in item)
    launch = ScriptLaunch(line, tuple(words), _changes(env, spec), folder)
    findings.launches.append(launch)


def _changes(env: Mapping[str, str], spec: Mapping[str, Any]) -> dict[str, str | None]:
    """Return what the script has exported on top of its caller's, whose PATH is a mark."""
    base = spec["env"]
    stubs = os.path.join(spec["place"], "stubs")
    changed: dict[str, str | None] = {}
    for name, value in env.items():
        if name in _OWN or (base.get(name) == value and name not in spec["answers"]):
            continue
        changed[name] = value.replace(base["PATH"], CALLER_VALUE).replace(f"{stubs}:", "")
    changed |= {name: None for name in _INHERITED if name in base and name not in env}
    return changed


def _line_of(text: str, words: Sequence[str]) -> int:
    """Return the line of a call, where its program and its script tell one; else 1."""
    lines = _lines_with(text, words[0])
    scripts = [word for word in words[1:] if re.search(r"\w\.(py|sh|yaml)$|^\w+(\.\w+)+$", word)]
    if len(lines) > 1 and scripts:
        ends = _lines_with(text, os.path.basename(scripts[0]))
        near = [n for n in lines if any(n <= end <= n + _LONGEST_COMMAND for end in ends)]
        lines = near if len(near) == 1 else lines
    return lines[0] if len(lines) == 1 else 1


def _lines_with(text: str, word: str) -> list[int]:
    pattern = re.compile(rf"(?<![\w.-]){re.escape(word)}(?![\w.-])")
    return [
        number
        for number, line in enumerate(text.splitlines(), 1)
        if not line.lstrip().startswith("#") and pattern.search(line)
    ]


def _note_unreached(text: str, findings: Findings) -> None:
    """Note the programs that start jobs and stand in the script, and were not called."""
    called = {word for launch in findings.launches for word in launch.words}
    for name in sorted(activities.launcher_names() - {os.path.basename(word) for word in called}):
        for line in _lines_with(text, name):
            findings.note(line, f"`{name}` was not reached", NOTHING)
