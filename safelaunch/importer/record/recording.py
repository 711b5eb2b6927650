"""What a recording has written down, as launches, notes and questions."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING, Any

from safelaunch.importer import activities
from safelaunch.importer.activities import ASSUMED, NOTHING
from safelaunch.importer.findings import Findings, ScriptLaunch, Stop, Unresolved
from safelaunch.importer.record import arguments
from safelaunch.importer.record.covers import real_python
from safelaunch.importer.record.stubs import is_python
from safelaunch.importer.state import CALLER_VALUE, CHANGING, NAME
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.importer.state import ScriptCaller

_LONGEST_COMMAND = 60  # lines
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NO_ANSWER = "left out; it answered nothing"
_EMPTY_FOLDER = "left out; its folder is there, and empty"
_ONLY_SETS = f"{ASSUMED} that it only sets what is asked for: `--set NAME=VALUE`"
_SUCCESS = f"{ASSUMED} that it succeeds at the start, at which `set -e` goes on"
_EMPTY = "it answered nothing: check the words and variables that are made of it"
_MOST_OPTIONS = 12  # in a hint
_LONGEST_EXAMPLE = 400
_PYTHON_JOB = re.compile(
    r"[^#]*?(?<![\w./$-])((?:[\w./-]*/)?python[\d.]*\s+(?:-[uOB]\s+)*(?:-m\s+)?(?!-)([\w./-]+\.?\w+))(?=\s|$)"
)
INHERITED = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE")
_OWN = frozenset(("PWD", "OLDPWD", "SHLVL", "_", "BASH_ENV"))


class Recording:
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
        self._absent: list[tuple[int, str]] = []  # line, and what is not there
        self._has_source = False
        self._arguments = arguments.arguments_read(text)
        self._own_lines = {number for number, _ in arguments.own_lines(text)}
        self._arguments_read: dict[int, int] = {}  # that are not given: line
        self._arguments_used: dict[int, int] = {}  # of these, those that more is done with

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
        # calls of the same millisecond come in any order
        self._findings.notes.sort(key=lambda note: note.line)
        self._end(answer)
        self._ask_for_arguments(answer["output"])
        if self._stops:
            self._findings.stop = self._stops[0]
        return self._findings

    def _read(  # noqa: C901, PLR0912 - a case for each kind of record
        self, kind: str, folder: str, words: list[str], environment: list[str]
    ) -> None:
        env = dict(item.split("=", 1) for item in environment if "=" in item)
        at, into = env.pop("SAFELAUNCH_AT", ""), env.pop("SAFELAUNCH_INTO", "")
        env.pop("SAFELAUNCH_ANSWER", None)
        if kind == "argument":
            self._argument(words, at)
            return
        if kind == "sourced":
            self._findings.sources.append(os.path.join(folder, words[0]))
            return
        self._source_of(at, folder)
        line = self._line(at, words[1:] if kind == "answer" else words)
        self._called.append(words)
        self._lines.add(line)
        if kind in {"absent", "source"} and not os.path.isabs(words[-1]):
            # calls of the same millisecond come in any order
            self._absent.append((line, words[-1]))
            self._findings.absent[:] = [path for _, path in sorted(self._absent)]
        note = self._note(kind, words, into)
        if note is not None:
            self._findings.note(line, *note)
        if kind in {"no answer", "failed", "missing"} and into:
            reason = f"`{into}` is what a program prints that fails here"
            if kind == "missing":
                reason = f"`{into}` is what `{words[0]}` prints, which is not here"
            elif kind == "no answer":
                reason = f"`{into}` is what `{words[0]}` prints, which is not run"
            self._findings.unanswered.setdefault(into, Unresolved(reason, line, into))
        elif kind == "answer":
            self._answer(words, line, into)
        elif kind == "asked":
            reason = f"the output of `{activities.describe(words)}` is used by the script"
            if into and not activities.starts_job(words):
                self._findings.problem(Unresolved(reason, line, into))
            else:
                self._refuse(reason, line)
        elif kind == "escaped":
            self._refuse(f"`{words[0]}` starts itself, and not its stub", line)
        elif kind == "input":
            if activities.may_launch(words[0], words[1]):
                reason = f"a launch in a here-document for `{words[0]}`"
                self._refuse(reason, line, "import that text as a script of its own")
        elif kind == "elsewhere" and not activities.is_launch(words):
            self._elsewhere(words, line)
        elif note is None:
            self._call(folder, words, env, line)

    def _source_of(self, at: str, folder: str) -> None:
        """Remember the file of a call that another script makes."""
        file = at.partition(":")[2]
        path = os.path.join(folder, file)
        is_own = file in {"", self._script} or path.startswith(self._spec["place"])
        if not is_own and path not in self._findings.sources:
            self._findings.sources.append(path)

    def _note(self, kind: str, words: list[str], into: str) -> tuple[str, str] | None:
        """Return what a record says beside launches, and what becomes of it."""
        shown = activities.describe(words)
        outcome = f"{ASSUMED} that it is there at the start"
        if kind == "source":
            self._has_source = True
        notes = {
            "no-op": (f"runs `{shown}`", _EMPTY_FOLDER if "clone" in words[1:2] else _NO_ANSWER),
            "no answer": (f"reads what `{words[0]}` prints", _EMPTY),
            "absent": (f"starts the script `{shown}`, which is not there", "left out"),
            "missing": (f"runs `{shown}`, which is not here", _NO_ANSWER),
            "source": (f"sources `{words[-1]}`, which is not there", _ONLY_SETS),
            "folder": (f"uses the folder `{words[-1]}`, which is not there", outcome),
            "program": (f"starts `{words[0]}`, which is not here", outcome),
            "failed": (
                f"`{activities.describe(words[-1].split())}` fails here with exit code {words[0]}",
                _SUCCESS,
            ),
            "answered": (f"reads what `{shown}` prints", f"`{into}` is what you have set"),
        }
        return notes.get(kind)

    def _refuse(self, reason: str, line: int, hint: str | None = None) -> None:
        self._stops.append(Stop(reason, line, hint or "import it without `--record`"))

    def _argument(self, words: list[str], at: str) -> None:
        """Take down which arguments a command reads that are not given."""
        left, command = int(words[0]), words[1]
        number, _, file = at.partition(":")
        if file != self._script or int(number) not in self._own_lines:
            return
        skipped = len(self._caller.arguments) - left  # by `shift`
        for reads, taken in (
            (arguments.numbers_read(command), self._arguments_read),
            (arguments.numbers_used(command), self._arguments_used),
        ):
            for argument in reads:
                if argument > left:
                    taken.setdefault(argument + max(skipped, 0), int(number))

    def _ask_for_arguments(self, output: str) -> None:
        """Ask for the arguments that are not given, where launches are due to them, or are none."""
        optional = {a.number for a in self._arguments if arguments.is_optional(self._text, a)}
        due = {n: at for n, at in self._arguments_used.items() if n not in optional}
        if not self._findings.launches:
            if self._stops:  # else what is only tested may be left out
                due = self._arguments_read or self._read_at(output)
            if not due and self._stops and re.search(r"\$(#|\{#)", self._text):
                due = {a.number: a.line for a in self._arguments[len(self._caller.arguments) :]}
        for number, line in sorted(self._arguments_read.items()):
            if due and not self._findings.is_cut_off:
                break
            outcome = f"{ASSUMED} that it is empty; else `-- ARG...`"
            self._findings.note(line, f"argument {number} is not given", outcome)
        if not due or self._findings.is_cut_off:
            return
        count = len(self._caller.arguments)
        missing = [a for a in self._arguments if a.number > count]
        missing += [
            arguments.Argument(n, at, "", ())
            for n, at in sorted(due.items())
            if n > max((a.number for a in self._arguments), default=0)
        ]
        for argument in missing:
            reason = f"argument {argument.number} of the script{argument.description}"
            self._findings.problem(Unresolved(reason, argument.line, f"${argument.number}"))
        self._findings.placeholders = tuple(a.placeholder for a in self._arguments)
        words = arguments.example(self._text, self._script)
        if missing and words:
            shown = activities.describe(["--", *words], longest=_LONGEST_EXAMPLE)
            self._findings.note(1, f"a comment calls it with `{shown}`", "for you to use")

    def _answer(self, words: list[str], line: int, into: str) -> None:
        status, *command = words
        shown = activities.describe(command)
        if status != "0" and into:
            reason = f"`{into}` is what `{shown}` prints, which fails here"
            self._findings.problem(Unresolved(reason, line, into))
        elif status != "0":
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
        path = self._caller.environ.get("PATH", PATH)

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

    def _read_at(self, output: str) -> dict[int, int]:
        """Return the arguments that are missing in lines which messages of bash name."""
        lines = dict(enumerate(self._text.splitlines(), 1))
        named = [int(n) for n in re.findall(rf"{re.escape(self._script)}: line (\d+): ", output)]
        read = {n: at for at in named for n in arguments.numbers_read(lines.get(at, ""))}
        return {n: at for n, at in read.items() if n > len(self._caller.arguments)}

    def _end(self, answer: Mapping[str, Any]) -> None:
        line = self._text.count("\n") or 1
        if answer["limit"] is not None:
            limits = {
                "time": f"{self._spec['seconds']} s",
                "processes": f"{self._spec['processes']} processes",
            }
            self._refuse(f"it took more than {limits[answer['limit']]} and was ended", line)
            self._findings.is_cut_off = True
            return
        if not answer["alone"]:
            self._findings.note(
                line, "programs in the background went on, and were ended",
                f"{ASSUMED} that no launch comes behind",
            )  # fmt: skip
        if not answer["status"]:
            hint = self._command_with(None, "")
            if hint is not None and not self._findings.launches:
                self._stops.append(Stop("it starts nothing without arguments", line, hint))
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
            placeholder = _placeholder(self._text)
            if placeholder is not None and not self._findings.launches:
                number, word = placeholder
                why = f"`{word}` is a placeholder"
                self._stops.append(Stop(why, number, "put the value in its place"))
                return
            name = self._missing_name(answer["output"][-400:])
            self._stops.append(Stop(reason, line, self._command_with(name, answer["output"])))
            is_variable = name is not None and name in _names_in(self._text)
            is_known = name in self._caller.answers or _is_argument(name or "", self._text)
            if name is not None and is_variable and not is_known:
                self._findings.problem(Unresolved(f"`{name}` has no value", line, name))

    def _missing_name(self, message: str) -> str | None:
        """Return the variable or argument for which a script ended."""
        matches = re.findall(r"line \d+: ([A-Za-z_]\w*|\$\d): (?!command not found)", message)
        if matches:
            return str(matches[-1])
        names = [n for n in re.findall(r"\b[A-Z][A-Z0-9_]+\b", message) if n in self._unset()]
        return names[-1] if names else None

    def _command_with(self, name: str | None, output: str) -> str | None:
        """Return a command that gives a variable or an argument."""
        command = f"safelaunch import --record {quote(self._script)}"
        sets = [f"--set {n}={quote(v)}" for n, v in self._caller.answers.items()]
        is_argument = name is not None and (name[0] == "$" or _is_argument(name, self._text))
        if name is not None and not is_argument and name in _names_in(self._text):
            return " ".join([command, *sets, f"--set {name}=VALUE"])
        options = arguments.options(self._text)
        required = {o: v for o, v in options.items() if re.search(rf"{o}(?![\w-])", output)}
        shown = [f"{o} VALUE" if has_value else o for o, has_value in (required or options).items()]
        words = shown[:_MOST_OPTIONS] or ["ARG..."]
        takes_arguments = re.search(r"\$[1-9#@*]|\$\{[1-9@*]", self._text)
        if name is not None or (takes_arguments and not self._caller.arguments):
            return " ".join([command, *sets, "--", *map(quote, self._caller.arguments), *words])
        return None

    def _unset(self) -> set[str]:
        return set(_variables_read(self._text)) - set(self._spec["env"])


def _placeholder(text: str) -> tuple[int, str] | None:
    """Return the first `<name>` outside quotes, which bash reads as redirections, with its line."""
    for number, line in enumerate(text.splitlines(), 1):
        bare = re.sub(r"\"[^\"]*\"|'[^']*'|(?:^|\s)#.*", "", line)
        match = re.search(r"(?<![<\w])<[A-Za-z_][^<>&|;$()`]*>", bare)
        if match is not None:
            return number, match[0]
    return None


def _is_argument(name: str, text: str) -> bool:
    return re.search(rf"\b{name}=[\"']?\$\{{?[1-9]", text) is not None


def _names_in(text: str) -> set[str]:
    return set(re.findall(r"\$\{?!?([A-Za-z_]\w*)", text))


def names_that_may_be_unset(text: str) -> dict[str, tuple[int, bool]]:
    """Return the variables that a script uses and does not test, add to, or give a default.

    Each with its first line, and whether the script sets it, in a branch perhaps.
    """
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        for name in () if line.lstrip().startswith("#") else sorted(_names_in(line)):
            lines.setdefault(name, number)
    foreign = _variables_read(text)
    return {
        name: (line, name not in foreign)
        for name, line in lines.items()
        if name not in CHANGING
        and not does_without(name, text)
        and not re.search(rf"\b{name}\+=", text)
    }


def does_without(name: str, text: str) -> bool:
    """Whether a script has a default for a variable, or looks whether it is empty."""
    default = rf"\$\{{{name}(\[[^]]*\])?:?[-=+?]"
    test = rf"(\[|\btest\b)(?:[^\n]*\s|\s*)-[znv][ \t]+[\"']?(\$\{{?)?{name}\b"
    return re.search(f"{default}|{test}", text) is not None


def is_tested(name: str, text: str) -> bool:
    """Whether a script decides by a variable."""
    test = rf"(\[|\btest\b|\bcase\b|\(\()[^\n]*\$\{{?{name}\b"
    return re.search(test, text) is not None


def is_made_of_output(name: str, text: str) -> bool:
    """Whether a script makes a variable of what programs print, and not of its own value."""
    values = re.findall(rf"(?:^|[\s;&|(]){name}=(\S*(?:\$\(|`).*)", text, re.MULTILINE)
    return bool(values) and not any(re.search(rf"\$\{{?{name}(?!\w)", v) for v in values)


def _variables_read(text: str) -> dict[str, int]:
    """Return the variables that a script reads and does not set, with the first line."""
    own = re.findall(
        r"(?:^|[\s;&|(])([A-Za-z_]\w*)\+?="
        r"|\b(?:for|read(?: -\w+)*|export|local) +([A-Za-z_]\w*)\b",
        re.sub(r"(?m)^\s*#.*", "", text), re.MULTILINE,
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
    changed |= {name: None for name in INHERITED if name in base and name not in env}
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
