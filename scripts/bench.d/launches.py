"""Real scripts in folders of checkouts: how many launches `import` and `run` understand.

The folders are named on the command line; nothing of their text is in this repository. A launch is
wrong if the words, variables or folder that reading a script gives differ from those that running
it gives, isolated and with stubs in place of launchers.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from rows import Row

from safelaunch.config.members import variables
from safelaunch.config.schema.files import JOB
from safelaunch.config.set_option import apply_set_option
from safelaunch.config.write_job import job_yaml
from safelaunch.errors import SafelaunchError
from safelaunch.importer import activities
from safelaunch.importer.findings import DIFFERENT
from safelaunch.importer.jobs import make_job
from safelaunch.importer.record.arguments import example as arguments_in_comment
from safelaunch.importer.record.record import record
from safelaunch.importer.shell.interpreter import follow
from safelaunch.importer.state import CALLER_VALUE, ScriptCaller
from safelaunch.importer.syntax import interpreter_of
from safelaunch.importer.variables.marks import ALL
from safelaunch.plan.launch_line.read import read_line
from safelaunch.plan.launch_line.shell import Shell

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from safelaunch.config.yaml_io.node import Node
    from safelaunch.importer.findings import Findings, ScriptLaunch
    from safelaunch.importer.variables.marks import JobVariables

_ANSWER, _ROUNDS = "7", 4
# the answer in place of what a script makes itself, where a recording takes the script's own
_OWN_VALUE = "60606"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KINDS = ("exact", "exact with answers", "wrong", "asks", "refused", "not comparable")


_MARK = re.escape(re.escape(ascii(DIFFERENT)[1:-1]))


class Outcome(NamedTuple):
    """What became of one script, read and recorded; `lines` are those of the recorded launches."""

    path: str
    launcher: str
    kind: str
    reason: str = ""
    recorded: str = "refused"  # or recorded, recorded with answers, asks
    lines: tuple[tuple[str, str], ...] = ()  # launcher, outcome as a pasted line


def imports(folders: Sequence[str]) -> Iterator[Row]:
    """Yield what `import` makes of the scripts below folders, for each launcher."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in _outcomes(folders):
        counts[outcome.launcher][outcome.kind] += 1
        counts[outcome.launcher][f"recording {outcome.recorded}"] += 1
    total = Counter[str]()
    for launcher, count in sorted(counts.items(), key=lambda item: -item[1].total()):
        total += count
        yield _row(f"`import` of scripts of {launcher}", count)
    yield _row("`import` of all scripts", total)


def launches(folders: Sequence[str]) -> Iterator[Row]:
    """Yield how the recorded launches below folders are taken as pasted lines."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in _outcomes(folders):
        for launcher, kind in outcome.lines:
            counts[launcher][kind] += 1
    for launcher, count in sorted(counts.items(), key=lambda item: -item[1].total()):
        shown = ", ".join(f"{kind} {number}" for kind, number in sorted(count.items()))
        yield Row(f"launches of {launcher} as a line", shown, "none changed", not count["changed"])


def recorded_launches(folders: Sequence[str]) -> Iterator[ScriptLaunch]:
    """Yield the launches that the scripts below folders start, as recordings see them."""
    scripts = [(folder, path) for folder in folders for path in _scripts(folder)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for items in pool.map(_recorded, scripts, chunksize=4):
            yield from items


def _recorded(script: tuple[str, str]) -> list[ScriptLaunch]:
    folder, path = script
    os.chdir(folder)
    caller = ScriptCaller({"HOME": os.path.expanduser("~"), "PATH": _PATH}, os.getcwd())
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SafelaunchError):
        # without the reasons why words differ at each start: exceptions, which cannot be pickled
        return [replace(launch, different={}) for launch in record(path, caller).launches]
    return []


def _row(what: str, count: Counter[str]) -> Row:
    scripts = sum(count[kind] for kind in _KINDS)
    shown = ", ".join(f"{kind} {count[kind]}" for kind in _KINDS if count[kind])
    kinds = sorted(kind for kind in count if kind.startswith("recording "))
    recorded = ", ".join(f"{kind.partition(' ')[2]} {count[kind]}" for kind in kinds)
    measured = f"{scripts} scripts read: {shown}; of their recordings: {recorded}"
    return Row(what, measured, "none wrong", not count["wrong"])


def _outcomes(folders: Sequence[str]) -> Iterator[Outcome]:
    scripts = [(folder, path) for folder in folders for path in _scripts(folder)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for outcome in pool.map(_outcome, scripts, chunksize=4):
            if outcome.kind not in ("exact", "exact with answers", "none"):
                print(f"{outcome.path}: {outcome.kind}: {outcome.reason}", file=sys.stderr)
            if outcome.kind != "none":
                yield outcome


def _scripts(folder: str) -> Iterator[str]:
    for place, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            path = os.path.join(place, name)
            if name.endswith((".sh", ".slurm")) and os.path.isfile(path):
                with open(path, encoding="utf-8", errors="replace") as file:
                    if activities.is_mentioned(file.read()):
                        yield os.path.relpath(path, folder)


def _outcome(script: tuple[str, str]) -> Outcome:
    folder, path = script
    os.chdir(folder)
    environ = {"HOME": os.path.expanduser("~"), "PATH": _PATH}
    caller = ScriptCaller(environ, os.getcwd())
    shown = os.path.join(os.path.basename(folder), path)
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            recorded = record(path, caller)
        except SafelaunchError as e:
            return Outcome(shown, "no launcher", "refused", str(e))
        try:
            findings = follow(path, caller, has_variables=True)
        except SafelaunchError as e:
            how, answered = how_recorded(recorded, path, caller)
            name = _launcher(answered.launches) or "no launcher"
            return Outcome(shown, name, "refused", str(e), how)
        how, answered = how_recorded(recorded, path, caller)
    launcher = _launcher(answered.launches) or _launcher(findings.launches)
    reached = how == "recorded"
    lines = tuple((_launcher([item]) or "", _as_line(item, environ)) for item in recorded.launches)
    if findings.variables is not None and not findings.problems:
        kind, reason = _with_values(path, caller, findings)
    else:
        kind, reason = _compare(findings, recorded, reached=reached)
    if kind == "asks":
        kind, reason = _answered(path, caller, findings, (kind, reason))
    if kind == "exact" and findings.variables is None:
        kind, reason = _as_job(findings, path, environ)
    if launcher is None:
        launcher = "no launcher"
    if how in {"asks", "refused"} and kind != "none":
        why = recorded.stop.reason if recorded.stop else _reasons(recorded) or "not one launch"
        print(f"{shown}: recording {how}: {why}", file=sys.stderr)
    return Outcome(shown, launcher, kind, reason, how, lines)


def how_recorded(findings: Findings, path: str, caller: ScriptCaller) -> tuple[str, Findings]:
    """Return how a script is recorded, and with the answers to what is asked for."""
    asks, answers, arguments = findings, dict[str, str](), list[str]()
    with open(os.path.join(caller.folder, path), encoding="utf-8", errors="replace") as file:
        example = [*arguments_in_comment(file.read(), path)]
    for _ in range(_ROUNDS):
        if not asks.problems:
            break
        for problem in asks.problems:
            name = problem.name or ""
            choice = re.search(r" \(`([^`]+)`", problem.reason)
            value = choice[1] if choice else _ANSWER
            if name[:1] == "$":
                arguments += [_ANSWER] * (int(name[1:]) - len(arguments))
                arguments[int(name[1:]) - 1] = value
            elif name:
                answers[name] = value
        if len(example) >= len(arguments):  # as its author calls it
            arguments = example
        asks = record(path, ScriptCaller(caller.environ, caller.folder, tuple(arguments), answers))
    if asks.launches and asks.stop is None and not asks.problems:
        return "recorded" if asks is findings else "recorded with answers", asks
    return "asks" if asks.problems else "refused", asks


def _reasons(findings: Findings) -> str:
    return "; ".join(f"line {p.line}: {p.reason}" for p in findings.problems[:3])


def _with_values(path: str, caller: ScriptCaller, findings: Findings) -> tuple[str, str]:
    """Compare jobs that have variables with a recording that has the same values.

    It counts as exact only if each plan, with these values, is that of the recorded launch.
    """
    own = findings.variables
    if own is None:
        return "refused", "no variables"
    outcome = "refused", "no values"
    for form in ("v{}x", "2{}"):  # where a word is refused, as a number of ranks, numbers
        values = {key: form.format(at) for at, key in enumerate(own.names)}
        outcome = _with_own_values(path, caller, findings, own, values)
        if outcome[0] != "refused":
            break
    return outcome


def _with_own_values(
    path: str,
    caller: ScriptCaller,
    findings: Findings,
    own: JobVariables,
    values: Mapping[str, str],
) -> tuple[str, str]:
    """Compare jobs that have variables with a recording that has these values."""
    count = own.count
    arguments = [values.get(f"${number}", _ANSWER) for number in range(1, count + 1)]
    rest = ["--more", "w"] if ALL in own.names else []
    answers = {name: value for name, value in values.items() if name[0] not in "$@"}
    recorded = record(path, replace(caller, arguments=(*arguments, *rest), answers=answers))
    if not recorded.launches or recorded.stop is not None or recorded.problems:
        why = recorded.stop.reason if recorded.stop else _reasons(recorded) or "none recorded"
        return "not comparable", why
    filled = [_with_texts(launch, own, values, rest) for launch in findings.launches]
    ours = Counter(map(_key, filled))
    theirs = Counter(map(_key, _with_marks(recorded.launches, filled)))
    if ours != theirs:
        return "wrong", f"\n  read:     {[*(ours - theirs)]}\n  recorded: {[*(theirs - ours)]}"
    for launch, plain in zip(findings.launches, filled, strict=True):
        kind, reason = _same_plan(path, caller, (launch, plain), own, (values, rest))
        if kind != "exact":
            return kind, reason
    return "exact", ""


def _with_texts(
    launch: ScriptLaunch, own: JobVariables, values: Mapping[str, str], rest: Sequence[str]
) -> ScriptLaunch:
    """Return a launch with values in place of its marks."""
    texts = {own.mark(key): value for key, value in values.items()}
    all_mark = own.mark(ALL) if ALL in own.names else None

    def filled(text: str) -> str:
        for mark, value in texts.items():
            text = text.replace(mark, value)
        return text

    words = [
        item for word in launch.words for item in (rest if word == all_mark else [filled(word)])
    ]
    env = {name: None if v is None else filled(v) for name, v in launch.env.items()}
    different = {at: why for at, why in launch.different.items() if not why.is_caller_value}
    return replace(launch, words=tuple(words), env=env, different=different)


def _same_plan(
    path: str,
    caller: ScriptCaller,
    launches: tuple[ScriptLaunch, ScriptLaunch],
    own: JobVariables,
    answers: tuple[Mapping[str, str], Sequence[str]],
) -> tuple[str, str]:
    """Compare the job with variables, given values, with the job of the launch with these."""
    launch, plain = launches
    values, rest = answers
    try:
        keys = make_job(launch, path, caller.environ, own).keys
        job_yaml(keys, None)
        direct = make_job(plain, path, caller.environ).keys
        for key, name in own.names.items():
            if keys.get("vars") is None or keys.get("vars").get(name) is None:  # type: ignore[union-attr]
                continue
            value = f"[{', '.join(rest)}]" if key == ALL else values[key]
            keys = apply_set_option(keys, f"vars.{name}={value}")
        filled = variables.substitute(keys)
        JOB.read(filled)
    except SafelaunchError as e:
        return "refused", str(e)
    texts, others = (_plain(tree, {"vars"}) for tree in (filled, direct))
    return ("exact", "") if texts == others else ("wrong", f"\n  {texts}\n  {others}")


def _plain(node: Node, without: Collection[str] = ()) -> object:
    if node.kind == "map":
        return {key.text: _plain(value) for key, value in node.items if key.text not in without}
    return [_plain(item) for item in node.items] if node.kind == "list" else node.text


def _answered(
    path: str, caller: ScriptCaller, findings: Findings, before: tuple[str, str]
) -> tuple[str, str]:
    """Answer what is asked for, as the environment and the arguments of both ways."""
    answers: dict[str, str] = {}
    count = 0
    for _ in range(_ROUNDS):
        names = {p.name or "" for p in findings.problems}
        if not names or "" in names:
            break
        answers |= {name: _ANSWER for name in names if name[0] != "$"}
        count = max([count, *(int(name[1:]) for name in names if name[0] == "$")])
        caller = ScriptCaller(caller.environ, caller.folder, (_ANSWER,) * count, answers)
        findings = follow(path, caller)
    if findings.problems or findings.stop:
        return before
    replaced = findings.replaced
    if replaced:
        values = dict.fromkeys(replaced, _OWN_VALUE)
        caller = replace(caller, answers={**answers, **values})
        findings = follow(path, caller)
    inherited = {name: value for name, value in answers.items() if name not in replaced}
    recorded = record(path, replace(caller, answers=inherited))
    questions = {problem.name for problem in recorded.problems} & replaced
    if questions:  # what a program prints that is not here
        own = dict.fromkeys(filter(None, questions), _OWN_VALUE)
        recorded = record(path, replace(caller, answers={**inherited, **own}))
    reached = bool(recorded.launches) and recorded.stop is None and not recorded.problems
    kind, reason = _compare(findings, recorded, reached=reached)
    if replaced and kind != "exact":  # what depends on that value may be other launches
        return before
    return f"{kind} with answers" if kind == "exact" else kind, f"with answers: {reason}"


def _as_job(findings: Findings, path: str, environ: Mapping[str, str]) -> tuple[str, str]:
    try:
        for launch in findings.launches:
            job_yaml(make_job(launch, path, environ).keys, None)
    except SafelaunchError as e:
        return "refused", str(e)
    return "exact", ""


def _compare(findings: Findings, recorded: Findings, *, reached: bool) -> tuple[str, str]:
    if findings.problems:
        names = [p.name for p in findings.problems]
        kind = "asks" if all(names) else "refused"
        return kind, _reasons(findings)
    if findings.stop is not None:
        return "refused", f"line {findings.stop.line}: {findings.stop.reason}"
    if not findings.launches:
        is_any = recorded.launches or recorded.problems
        return ("refused", "not one launch") if is_any else ("none", "")
    if not reached:
        why = recorded.stop.reason if recorded.stop else _reasons(recorded) or "none recorded"
        return "not comparable", why
    ours = Counter(map(_key, findings.launches))
    theirs = Counter(map(_key, _with_marks(recorded.launches, findings.launches)))
    if ours == theirs:
        return "exact", ""
    return "wrong", f"\n  read:     {[*(ours - theirs)]}\n  recorded: {[*(theirs - ours)]}"


def _with_marks(
    recorded: Sequence[ScriptLaunch], read: Sequence[ScriptLaunch]
) -> Iterator[ScriptLaunch]:
    """Yield recorded launches, with the marks of those read that differ at each start."""
    marked = [
        launch
        for launch in read
        if launch.different or _OWN_VALUE in str((launch.words, launch.env))
    ]
    for launch in recorded:
        yield next((other for other in marked if _is_one_of(launch, other)), launch)


def _is_one_of(recorded: ScriptLaunch, read: ScriptLaunch) -> bool:
    """Whether a launch is what another one with marks may become."""
    texts, patterns = ([str(part) for part in _key(launch)] for launch in (recorded, read))
    pairs = zip(texts, patterns, strict=True)
    return all(
        re.fullmatch(re.sub(f"{_OWN_VALUE}|{_MARK}", ".*", re.escape(pattern)), text)
        for text, pattern in pairs
    )


def _key(launch: ScriptLaunch) -> tuple[object, ...]:
    env = {
        name: value.replace(CALLER_VALUE, "$PATH" if name == "PATH" else "")
        for name, value in launch.env.items()
        if value is not None
    }
    return _own_words(launch), tuple(sorted(env.items())), os.path.realpath(launch.folder)


def _own_words(launch: ScriptLaunch) -> tuple[str, ...]:
    """Return the words of a launch as a script has them: `./tool.py` starts `python3 ./tool.py`."""
    words = launch.words
    program = os.path.join(launch.folder, words[1]) if len(words) > 1 else ""
    name = os.path.basename(words[0])
    is_tool = "/" in program and name.startswith("python") and os.access(program, os.X_OK)
    return words[1:] if is_tool and interpreter_of(program) == name else words


def _launcher(items: Iterable[ScriptLaunch]) -> str | None:
    words = next((launch.words for launch in items), None)
    return None if words is None else os.path.basename(words[0]).rstrip("0123456789.")


def _as_line(launch: ScriptLaunch, environ: Mapping[str, str]) -> str:
    """Return `understood`, `repeated` (as a plain command), `refused` or `changed`."""
    env = [f"{n}={v}" for n, v in launch.env.items() if v is not None and CALLER_VALUE not in v]
    try:
        words = [*env, *launch.words]
        tree = read_line(words, Shell(launch.folder, environ), is_remote=True).tree
        job_yaml(tree, None)
    except SafelaunchError:
        return "refused"
    launcher, command = tree.get("launcher"), tree.get("command")
    if command is None or launcher is None or launcher.text != "command":
        return "understood"
    words = tuple(item.text for item in command.items)
    return "repeated" if words == launch.words[len(launch.words) - len(words) :] else "changed"
