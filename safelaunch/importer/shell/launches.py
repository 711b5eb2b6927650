"""Programs that a script runs: launches, and what others do for them."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from safelaunch.importer import activities, differing
from safelaunch.importer.activities import SETUP, USER
from safelaunch.importer.findings import DIFFERENT, ScriptLaunch, Stop, Unresolved
from safelaunch.importer.shell import programs
from safelaunch.importer.state import CALLER_VALUE, SetupLine
from safelaunch.importer.variables.marks import is_whole
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.importer.findings import Note
    from safelaunch.importer.shell.follower import Follower, Item
    from safelaunch.importer.state import State

_MOST_LAUNCHES = 200
_PLACEHOLDER = re.compile(
    r"<(your|my|path|insert|enter|replace|put|fill|the|model|dataset)[^<>|]*>", re.IGNORECASE
)
_AS_IT_IS = f"{USER}: make it before the start, or it goes on without"
_SUCCEEDING = ("echo", "printf", "sleep", "clear", "date")


def other_program(
    follower: Follower, items: Sequence[Item], shown: list[str], line: int, state: State
) -> None:
    """Note a program that is no launch; its success is presumed where it does something."""
    name, text = shown[0], activities.describe(shown)
    action = activities.find_action(shown)
    failure = next((item for item in items if isinstance(item, Unresolved)), None)
    finds_port = programs.differs(shown, state)
    state.status, follower.doubt = None, state.fail(f"the result of `{text}`", differs=finds_port)
    if state.output is not None:
        output = programs.output(shown, state) if failure is None else failure.as_unmarked()
        is_calculated = name in programs.PROGRAMS and name not in programs.FILTERS  # no file
        if failure is not None and failure.differs and (finds_port or is_calculated):
            output = failure.with_content(None)
        if isinstance(output, str):
            state.budget.spend(len(output))
        state.output.append(output)
        if name in programs.PROGRAMS and isinstance(output, str):
            state.status = programs.status(name, output)
    _take_input(name, state, is_known=action is not None)
    if programs.may_make_folders(shown):
        state.writers.add(name)
    if action is None:
        if name not in programs.PROGRAMS:
            follower.findings.note(line, f"runs `{text}`", USER)
        return
    if action.text == activities.SHOWS:
        if name in _SUCCEEDING:
            state.status = 0
        return
    _act(follower, action, shown, line, state)


def _act(follower: Follower, action: Note, shown: list[str], line: int, state: State) -> None:
    """Note a program that does something, and let `setup:` do it where it can."""
    if shown[0] == "mkdir" and not make_folders(shown[1:], state):
        if follower.guards or "errexit" in state.options:
            raise Stop("`mkdir` below a folder that is not there", line)
        text = f"{action.text} below one that is not there: `{activities.describe(shown)}`"
        follower.findings.note(line, text, _AS_IT_IS)
        return
    clone_folder(shown, state)
    state.status = 0
    is_left = action.outcome == SETUP and not _set_up(shown, state)
    outcome = f"{USER}: before the start" if is_left else action.outcome
    follower.findings.note(line, f"{action.text}: `{activities.describe(shown)}`", outcome)


def _take_input(name: str, state: State, *, is_known: bool) -> None:
    """Take from the input of a loop what a program may read of it."""
    if name in programs.FILTERS:
        state.input = "" if state.input else state.input
    elif state.input and name not in programs.PROGRAMS and not is_known:
        state.input = state.fail(f"what `{name}` leaves of its input")


def _set_up(shown: list[str], state: State) -> bool:
    """Let `setup:` run a program; False where the script does not say all of its words."""
    if "VALUE" in shown or any(CALLER_VALUE in word for word in shown):
        return False
    names = [word for word in shown[1:] if not word.startswith("-")]
    anywhere = shown[0] != "mkdir" or all(map(os.path.isabs, names))
    add_setup(SetupLine(" ".join(map(quote, shown)), None if anywhere else state.folder), state)
    return True


def add_setup(line: SetupLine, state: State) -> None:
    """Remember a line that later launches need, once."""
    if line not in state.setup:
        state.setup = (*state.setup, line)


_CLONE_VALUES = frozenset((
    "-b", "--branch", "--depth", "-o", "--origin", "-c", "--config", "-j", "--jobs", "--filter",
    "--reference", "--template", "--shallow-since", "--shallow-exclude", "-u", "--upload-pack",
))  # fmt: skip


def clone_folder(words: Sequence[str], state: State) -> None:
    """Remember the folder that `git clone` makes: the one it names, or that of its address."""
    rest, names = list(words[2:]), list[str]()
    if tuple(words[:2]) != ("git", "clone") or "VALUE" in words:
        return
    while rest:
        word = rest.pop(0)
        if word in _CLONE_VALUES:
            del rest[:1]
        elif word == "--":
            names += rest
            break
        elif not word.startswith("-"):
            names.append(word)
    if not 0 < len(names) < 3 or {"--bare", "--mirror"} & {*words}:  # noqa: PLR2004 - address, folder
        return
    address = re.sub(r"(/?\.git)?/*$", "", names[0])
    name = names[1] if len(names) > 1 else re.split(r"[/:]", address)[-1]
    if name:
        make_folders(["-p", name], state)


def make_folders(words: Sequence[str], state: State) -> bool:
    """Remember the folders that `mkdir` makes; False where one above them is not there."""
    if not isinstance(state.folder, str):
        return True
    names = [os.path.join(state.folder, n) for n in words if not n.startswith("-")]
    paths = {os.path.normpath(name) for name in names}
    parents = {os.path.dirname(path) for path in paths}
    with_parents = any(option.startswith("-") and "p" in option for option in words)
    if not with_parents and not all(
        os.path.isdir(path) or path in state.folders for path in parents - paths
    ):
        return False
    state.folders.update(paths)
    while parents := {path for path in parents if not os.path.isdir(path)} - state.folders:
        state.folders.update(parents)
        parents = {os.path.dirname(path) for path in parents}
    return True


def launch(follower: Follower, items: Sequence[Item], line: int, state: State) -> None:
    """Add a launch to the findings, or why it cannot be one."""
    failures = [i for i in items if isinstance(i, Unresolved) and not isinstance(i.content, str)]
    words = [item.content if isinstance(item, Unresolved) else item for item in items]
    argv = tuple(word for word in words if isinstance(word, str))
    different: dict[int | str, Unresolved] = {
        at: item
        for at, item in enumerate(items)
        if isinstance(item, Unresolved) and item not in failures
    }
    state.status = 0
    state.writers.add(argv[0] if argv else "")
    if follower.substitutions:
        _helper(follower, argv, line, state)
        return
    if state.output is not None:
        state.output.append(state.fail("the output of a launch"))
    env: Mapping[str, str | None] = {}
    folder, setup = "", tuple[str, ...]()
    try:
        env, folder = state.environment(different), state.where()
        setup = _setup_lines(state, folder)
    except Unresolved as e:
        failures.append(e)
    failures += [Unresolved(reason, line) for reason in _unfit_words(argv)]
    own = {
        place
        for place, why in different.items()
        if why.is_caller_value
        and is_whole(str(why.content if isinstance(place, int) else env.get(place, DIFFERENT)))
    }
    failures += [
        why.as_unmarked()
        for place, why in different.items()
        if why.is_caller_value and place not in own
    ]
    missing = state.redirection.missing
    if missing is not None:
        reason = f"a launch with its output in `{missing}`, which is not there"
        raise Stop(reason, line, f"mkdir -p {quote(missing)}")
    if state.input not in (None, ""):
        raise Stop("a launch that reads an input from the script", line)
    if failures:
        unsettled = [
            why
            for place, why in different.items()
            if place not in own and not differing.may_settle(place, items, why)
        ]
        for failure in (*failures, *unsettled):
            follower.findings.problem(failure)
        return
    if len(follower.findings.launches) >= _MOST_LAUNCHES:
        raise Stop(f"more than {_MOST_LAUNCHES} launches", line)
    script_launch = ScriptLaunch(
        line, argv, env, folder, state.redirection, state.in_background, state.loop, setup,
        state.interpreter, different,
    )  # fmt: skip
    follower.findings.launches.append(script_launch)


def _unfit_words(argv: Sequence[str]) -> list[str]:
    return [
        *(f"`{word}` is a placeholder" for word in argv if _PLACEHOLDER.search(word)),
        *("the caller's value in an argument" for word in argv if CALLER_VALUE in word),
    ]


def _setup_lines(state: State, folder: str) -> tuple[str, ...]:
    """Return the lines to run in the folder of a launch. Raises Unresolved."""
    lines, at = list[str](), folder
    for text, own in state.setup:
        if isinstance(own, Unresolved):
            raise own
        if own is not None and own != at:
            lines.append(f"cd -- {quote(os.path.relpath(own, at))} || exit 1")
            at = own
        lines.append(text)
    return tuple(lines)


def _helper(follower: Follower, argv: tuple[str, ...], line: int, state: State) -> None:
    """Treat a program whose output is used: Python is a helper, a launcher is not followed."""
    if not os.path.basename(argv[0]).startswith("python"):
        raise Stop(f"the output of `{argv[0]}` is used by the script", line)
    text = activities.describe(argv)
    follower.findings.note(line, f"runs `{text}` for its output", USER)
    if state.output is not None:
        differs = programs.differs(argv, state)
        state.output.append(state.fail(f"the output of `{text}`", differs=differs))
