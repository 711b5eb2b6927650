"""Records the launches of a script: it runs isolated, and stubs write down the calls."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from safelaunch.errors import StartError
from safelaunch.importer import activities
from safelaunch.importer.activities import ASSUMED, NOTHING
from safelaunch.importer.findings import Findings, ScriptLaunch, Stop
from safelaunch.importer.record.covers import programs_to_cover, real_python
from safelaunch.importer.record.stubs import is_python, stub_files
from safelaunch.importer.state import CALLER_VALUE, NAME
from safelaunch.importer.syntax import read_script
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.importer.state import ScriptCaller

SECONDS = 20  # of the whole script; its launches are stubs, and what it downloads is left out
_LONGEST_COMMAND = 60  # lines
_MOST_PROCESSES = 200
_SANDBOX = os.path.join(os.path.dirname(__file__), "sandbox.py")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SYSTEM = frozenset((
    "/bin", "/boot", "/dev", "/etc", "/proc", "/run", "/sbin", "/sys", "/usr", "/snap", "/var",
))  # fmt: skip
# of the user, who may have secrets in them: a recording sees them empty
_STARTUP_FILES = (".bashrc", ".bash_profile", ".bash_login", ".profile", ".zshrc")
_NO_ANSWER = "left out; it answered nothing"
_EMPTY = "it answered nothing: check the words and variables that are made of it"
_PYTHON_JOB = re.compile(
    r"[^#]*?(?<![\w./$-])((?:[\w./-]*/)?python[\d.]*\s+(?:-[uOB]\s+)*(?:-m\s+)?(?!-)([\w./-]+\.?\w+))(?=\s|$)"
)
_OWN = frozenset(("PWD", "OLDPWD", "SHLVL", "_", "BASH_ENV"))
_INHERITED = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE")


def record(script: str, caller: ScriptCaller, seconds: int = SECONDS) -> Findings:
    """Return the launches that a script makes when it runs. Raises StartError without isolation."""
    text = read_script(script)
    findings = _record(script, text, caller, seconds)
    own = os.path.dirname(os.path.realpath(os.path.join(caller.folder, script)))
    if not findings.launches and own != os.path.realpath(caller.folder):
        name = os.path.basename(script)
        from_own_folder = _record(name, text, replace(caller, folder=own), seconds)
        if from_own_folder.launches and from_own_folder.stop is None:
            line = findings.stop.line if findings.stop is not None else 1
            command = f"cd {quote(own)} && safelaunch import --record {quote(name)}"
            reason = "it reaches no launch from here, and does from its own folder"
            findings.stop = Stop(reason, line, command)
    return findings


def _record(script: str, text: str, caller: ScriptCaller, seconds: int) -> Findings:
    if sys.platform != "linux":
        raise StartError("`--record` needs the namespaces of Linux", hint="import without it")
    bash = shutil.which("bash", path=_PATH)
    if bash is None:
        raise StartError("`--record` needs bash")
    place = _make_place()
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
    return _Recording(text, script, caller, spec).findings(answer)


def _make_place() -> str:
    """Return a new folder, in whose path a shell reads no character as its own."""
    place = tempfile.mkdtemp(prefix="safelaunch-record-")
    if re.fullmatch(r"[\w/.+-]+", place, re.ASCII):
        return place
    os.rmdir(place)
    return tempfile.mkdtemp(prefix="safelaunch-record-", dir="/tmp")


def _specification(
    script: str, text: str, caller: ScriptCaller, place: str, bash: str
) -> dict[str, Any]:
    home = caller.environ.get("HOME", "/")
    stubs = os.path.join(place, "stubs")
    path = caller.environ.get("PATH", _PATH)
    programs = {n: p for n in activities.WRAPPERS if (p := shutil.which(n, path=path))}
    programs["python3"] = real_python(path)
    env = {name: caller.environ[name] for name in _INHERITED if name in caller.environ}
    env |= {"PATH": f"{stubs}:{_PATH}", "TERM": "dumb", "SHELL": bash}
    env |= {**caller.answers, "BASH_ENV": os.path.join(place, "bash_env")}
    covered = programs_to_cover(text, caller)
    return {
        "place": place,
        "argv": [bash, script, *caller.arguments],
        "env": env,
        "folder": caller.folder,
        "project": project_root(caller.folder),
        "writable": _writable(caller.folder, home, text),
        "covered": covered,
        "empty": [p for n in _STARTUP_FILES if os.path.isfile(p := os.path.join(home, n))],
        "files": stub_files(place, bash, programs, covered),
        "answers": sorted(caller.answers),
        "processes": _MOST_PROCESSES,
    }


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


class _Recording:
    """Reads what a recording has written down."""

    def __init__(
        self, text: str, script: str, caller: ScriptCaller, spec: Mapping[str, Any]
    ) -> None:
        self._text = text
        self._script = script
        self._caller = caller
        self._spec = spec
        self._findings = Findings()
        self._stops: list[Stop] = []
        self._called: list[Sequence[str]] = []
        self._lines: set[int] = set()
        self._has_source = False

    def findings(self, answer: Mapping[str, Any]) -> Findings:
        """Return the launches and notes, and why it is refused."""
        for raw in answer["calls"]:
            content = raw.encode("latin-1").decode("utf-8", "surrogateescape")
            kind, *parts = content.split("\0")
            if kind == "too many":
                self._stops.append(Stop("it makes too many calls to record", 1))
                break
            folder, count, *rest = parts
            self._read(kind, folder, rest[: int(count)], rest[int(count) :])
        self._note_unreached()
        self._note_variables()
        self._end(answer)
        if self._stops:
            self._findings.stop = self._stops[0]
        return self._findings

    def _read(  # noqa: C901 - a case for each kind of record
        self, kind: str, folder: str, words: list[str], environment: list[str]
    ) -> None:
        env = dict(item.split("=", 1) for item in environment if "=" in item)
        line = self._line(env.pop("SAFELAUNCH_AT", ""), words[1:] if kind == "answer" else words)
        self._called.append(words)
        self._lines.add(line)
        note = self._findings.note
        if kind == "no-op":
            note(line, f"runs `{words[0]}`", _NO_ANSWER)
        elif kind == "no answer":
            note(line, f"reads what `{words[0]}` prints", _EMPTY)
        elif kind == "missing":
            shown = activities.describe(words)
            note(line, f"runs `{shown}`, which is not here", _NO_ANSWER)
        elif kind == "source":
            self._has_source = True
            outcome = f"{ASSUMED} that it only sets what is asked for: `--set NAME=VALUE`"
            note(line, f"sources `{words[1]}`, which is not there", outcome)
        elif kind == "folder":
            outcome = f"{ASSUMED} that it is there at the start"
            note(line, f"changes to `{words[1]}`, which is not there", outcome)
        elif kind == "answer":
            self._answer(words, line)
        elif kind == "asked":
            self._refuse(f"the output of `{words[0]}` is used by the script", line)
        elif kind == "escaped":
            self._refuse(f"`{words[0]}` starts itself, and not its stub", line)
        elif kind == "input":
            if activities.is_mentioned(words[1]):
                reason = f"a launch in a here-document for `{words[0]}`"
                self._refuse(reason, line, "import that text as a script of its own")
        elif kind == "elsewhere" and not activities.is_launch(words):
            self._elsewhere(words, line)
        else:
            self._call(folder, words, env, line)

    def _refuse(self, reason: str, line: int, hint: str | None = None) -> None:
        self._stops.append(Stop(reason, line, hint or "import it without `--record`"))

    def _answer(self, words: list[str], line: int) -> None:
        status, *command = words
        shown = activities.describe(command)
        if status != "0":
            hint = "it needs the packages of that Python here; or import it without `--record`"
            self._refuse(f"`{shown}` fails here, and the script reads its answer", line, hint)
        else:
            self._findings.note(line, f"runs `{shown}` for its answer", "as it is on this machine")

    def _elsewhere(self, words: list[str], line: int) -> None:
        script = next((w for w in words[1:] if re.search(r"\w\.(sh|bash|slurm|sbatch)$", w)), None)
        if script is not None:
            reason = f"it starts the script `{script}` through `{words[0]}`"
            self._refuse(reason, line, "import that script itself")
            return
        if any(" " in word and activities.is_mentioned(word) for word in words[1:]):
            reason = f"a launch in a text for `{words[0]}`"
            self._refuse(reason, line, "import that text as a script of its own")
            return
        self._findings.note(line, f"runs `{words[0]}`", _NO_ANSWER)

    def _call(self, folder: str, words: list[str], env: dict[str, str], line: int) -> None:
        if not activities.is_launch(words):
            shown = activities.describe(words)
            action = activities.find_action(words)
            outcome = action.outcome if action is not None else NOTHING
            self._findings.note(line, f"runs `{shown}`", outcome)
            return
        changes = {
            name: value if value is None else self._without_stubs(value, line)
            for name, value in _changes(env, self._spec).items()
        }
        words = [self._without_stubs(word, line) for word in words]
        place = self._spec["place"]
        if any(place in text for text in (*words, *changes.values()) if text is not None):
            self._refuse("a launch with where programs are in its words or variables", line)
            return
        launch = ScriptLaunch(line, tuple(words), changes, folder)
        self._findings.launches.append(launch)

    def _without_stubs(self, text: str, line: int) -> str:
        """Return a text with the programs that `which` would find without stubs."""
        path = self._caller.environ.get("PATH", _PATH)

        def program(match: re.Match[str]) -> str:
            real = shutil.which(match[1], path=path)
            if real is None and is_python(match[1]):
                real = real_python(path)
                self._findings.note(line, f"asks where `{match[1]}` is", f"{ASSUMED} `{real}`")
            return real or match[0]

        stubs = re.escape(os.path.join(self._spec["place"], "stubs"))
        return re.sub(rf"{stubs}/([\w.-]+)", program, text)

    def _line(self, at: str, words: Sequence[str]) -> int:
        """Return the line of a call: the trap of the shell has it, unless another script called."""
        number, _, file = at.partition(":")
        if number.isdigit() and file == self._script:
            return int(number)
        return _line_of(self._text, words)

    # -- what was not called -----------------------------------------------------------------------

    def _note_unreached(self) -> None:
        """Note what starts jobs and stands in the script, and was not called."""
        called = {os.path.basename(word) for words in self._called for word in words}
        for name in sorted(activities.launcher_names() - called):
            for line in _lines_with(self._text, name):
                self._findings.note(line, f"`{name}` was not reached", NOTHING)
        for line, text in enumerate(self._text.splitlines(), 1):
            match = _PYTHON_JOB.match(text)
            if match is None or line in self._lines:
                continue
            if os.path.basename(match[2]) not in called:
                self._findings.note(line, f"`{match[1]}` was not reached", NOTHING)

    def _note_variables(self) -> None:
        """Note the caller's variables that the script reads, and that are left out."""
        for name, line in _variables_read(self._text).items():
            is_handed_on = name in self._spec["env"] or name in _OWN
            if name in self._caller.environ and not is_handed_on:
                outcome = f"left out; else `--set {name}=VALUE`"
                self._findings.note(line, f"reads `{name}`, which you have set", outcome)

    # -- its end -----------------------------------------------------------------------------------

    def _end(self, answer: Mapping[str, Any]) -> None:
        line = self._text.count("\n") or 1
        if answer["limit"] is not None:
            limits = {
                "time": f"{self._spec['seconds']} s",
                "processes": f"{_MOST_PROCESSES} processes",
            }
            self._refuse(f"it took more than {limits[answer['limit']]} and was ended", line)
            return
        if not answer["alone"]:
            self._findings.note(
                line, "programs in the background went on, and were ended",
                f"{ASSUMED} that no launch comes behind",
            )  # fmt: skip
        if not answer["status"]:
            return
        how = f"exit code {answer['status']}" if answer["status"] > 0 else "a signal"
        last = " ".join(answer["output"].split())[-160:]
        ended = f"it ended with {how}: {last}" if last else f"it ended with {how}"
        self._findings.note(line, ended, f"{ASSUMED} that no launch comes behind")
        is_asked_for = self._has_source and "unbound variable" in last
        if not self._findings.launches or is_asked_for:
            reason = f"it ended with {how} before a launch: {last}"
            if is_asked_for:
                reason = f"a variable has no value, which a file that is not there may set: {last}"
            self._stops.append(Stop(reason, line, self._what_is_missing(answer["output"])))

    def _what_is_missing(self, output: str) -> str | None:
        """Return a command that gives the variable or argument for which a script ended."""
        message = output[-400:]
        command = f"safelaunch import --record {quote(self._script)}"
        matches = re.findall(r"line \d+: ([A-Za-z_]\w*|\$\d): (?!command not found)", message)
        name = matches[-1] if matches else None
        if name is None:
            names = [n for n in re.findall(r"\b[A-Z][A-Z0-9_]+\b", message) if n in self._unset()]
            name = names[-1] if names else None
        sets = [f"--set {n}={quote(v)}" for n, v in self._caller.answers.items()]
        if name is not None and name[0] != "$" and name in _names_in(self._text):
            return " ".join([command, *sets, f"--set {name}=VALUE"])
        takes_arguments = re.search(r"\$[1-9#@*]|\$\{[1-9@*]", self._text)
        if name is not None or (takes_arguments and not self._caller.arguments):
            return " ".join([command, *sets, "--", *map(quote, self._caller.arguments), "ARG..."])
        return None

    def _unset(self) -> set[str]:
        return set(_variables_read(self._text)) - set(self._spec["env"])


def _names_in(text: str) -> set[str]:
    return set(re.findall(r"\$\{?!?([A-Za-z_]\w*)", text))


def _variables_read(text: str) -> dict[str, int]:
    """Return the variables that a script reads and does not set, with the first line."""
    own = re.findall(
        r"^\s*(?:\w+ +)*?([A-Za-z_]\w*)\+?="
        r"|\b(?:for|read(?: -\w+)*|export|local) +([A-Za-z_]\w*)\b",
        text, re.MULTILINE,
    )  # fmt: skip
    own_names = {name for pair in own for name in pair}
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        for name in () if line.lstrip().startswith("#") else sorted(_names_in(line)):
            reads_own = re.search(rf"\b{name}=\S*\$\{{?{name}\b", line) is not None
            if name not in own_names or reads_own:
                lines.setdefault(name, number)
    return lines


def _changes(env: Mapping[str, str], spec: Mapping[str, Any]) -> dict[str, str | None]:
    """Return what the script has exported on top of its caller's, whose PATH is a mark."""
    base = spec["env"]
    stubs = os.path.join(spec["place"], "stubs")
    changed: dict[str, str | None] = {}
    for name, value in env.items():
        if name in _OWN or name.startswith("__safelaunch") or not NAME.fullmatch(name):
            continue
        if base.get(name) == value and name not in spec["answers"]:
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
