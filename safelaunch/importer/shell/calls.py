"""What a command runs that is in the script or beside it: functions, files, texts, shells."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.importer import posix, questions
from safelaunch.importer.activities import NOTHING, SETUP, SHELLS, USER
from safelaunch.importer.findings import DIFFERENT, Stop, Unresolved, combined
from safelaunch.importer.shell import branches, builtins, effects, environments, launches
from safelaunch.importer.shell.builtins import Return
from safelaunch.importer.shell.follower import DEEPEST
from safelaunch.importer.state import SetupLine, Variable
from safelaunch.importer.syntax import first_line, literal_words
from safelaunch.importer.variables.marks import ALL, is_whole
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.importer.shell.follower import Follower, Item
    from safelaunch.importer.state import State
    from safelaunch.importer.syntax import SyntaxNode


_DIFFERENT_VALUE = "_safelaunch_different"  # in a text for `eval`, where a mark would be a text
# where a variable in place of a mark would be read as another text than its value
_NOT_READ_AGAIN = re.compile(rf"'|<<|[\\$]{DIFFERENT}|\{{[^}}]*{DIFFERENT}")


# -- in the same shell -----------------------------------------------------------------------------


def function(follower: Follower, name: str, items: Sequence[Item], state: State) -> None:
    """Follow a call of a function."""
    if follower.depth > DEEPEST:
        raise Stop(f"`{name}` calls itself without an end", state.line)
    called = state.functions[name]
    before, body = (_arguments(state), state.sources), state.body
    _set_arguments(items, called.body, state)
    state.body = (called.body,)
    state.sources = (called.source, *state.sources)
    state.scopes.append({})
    follower.depth += 1
    try:
        follower.statement(called.body, state)
    except Return:
        pass
    except branches.UnresolvedRest as e:
        branches.undecided_function(follower, called.body, state, e.why)
    finally:
        follower.depth -= 1
        (arguments, state.sources), state.body = before, body
        _restore_arguments(arguments, state)
        state.end_scope()


class _Arguments(NamedTuple):
    words: list[str]
    unresolved: Unresolved | None
    are_all: bool
    optional: frozenset[int]
    shift: int


def _arguments(state: State) -> _Arguments:
    return _Arguments(
        state.arguments, state.arguments_unresolved, state.has_all_arguments,
        state.optional_arguments, state.shift,
    )  # fmt: skip


def _restore_arguments(before: _Arguments, state: State) -> None:
    state.arguments, state.arguments_unresolved, state.has_all_arguments = before[:3]
    state.optional_arguments, state.shift = before[3:]


def _set_arguments(items: Sequence[Item], tree: SyntaxNode, state: State) -> None:
    """Set the arguments of a tree; behind `"$@"` those that are missing are the caller's."""
    own = state.job_variables
    if own is not None and state.passes_arguments and not state.has_all_arguments:
        # marks at the end are what is missing: the caller's, as before
        missing = own.count - len(state.arguments) + state.shift + (ALL in own.names)
        is_marked = all(isinstance(i, Unresolved) and i.is_caller_value for i in items[-missing:])
        items = items[:-missing] if missing > 0 and is_marked else items
    passes_own = state.passes_arguments and len(items) >= len(state.arguments)
    state.shift += len(items) - len(state.arguments)
    texts = [item if isinstance(item, str) else _with_marks(item, state) for item in items]
    state.arguments = [text or "" for text in texts]
    failures = (item for item, text in zip(items, texts, strict=True) if text is None)
    state.arguments_unresolved = next((i for i in failures if isinstance(i, Unresolved)), None)
    state.bound_arguments()
    state.has_all_arguments = state.has_all_arguments or not passes_own
    state.optional_arguments = frozenset()
    if passes_own:
        state.optional_arguments = questions.optional_arguments(tree)


def _with_marks(item: Unresolved, state: State) -> str | None:
    """Return an argument with marks for what is a variable of the job; None for another one."""
    own, content = state.job_variables, item.content
    if own is None or not item.is_caller_value or not isinstance(content, str):
        return None
    is_list = ALL in own.names and own.mark(ALL) in content
    return None if is_list or not is_whole(content) else content


def source(follower: Follower, items: Sequence[Item], line: int, state: State) -> None:
    """Follow `source`, or take over what the file activates."""
    state.status = 0
    if len(items) == 1:
        raise Stop(f"`{items[0]}` without a file", line)
    path = items[1]
    if isinstance(path, Unresolved):
        state.forget(f"a file is sourced, and {path.reason}")
        state.writers.add("source")
        state.unresolved_exports = path
        return
    if activates(follower, lambda: environments.source(items[1:], state), line):
        return
    whole = os.path.join(state.where(), path)
    if not os.path.isfile(whole) or os.path.realpath(whole) in follower.files:
        state.forget(f"`{path}`, which is sourced, is not there")
        if not os.path.isabs(path):
            follower.findings.absent.append(path)
        state.writers.add("source")
        launches.add_setup(SetupLine(f"source {quote(path)}", state.folder), state)
        follower.findings.note(line, f"sources `{path}`, which is not there", SETUP)
        return
    tree = follower.parse_file(whole, path, line, posix="sh" in state.options)
    before = _arguments(state)
    outer_sources, state.sources = state.sources, (path, *state.sources)
    if len(items) > 2:  # noqa: PLR2004 - arguments of its own
        _set_arguments(items[2:], tree, state)
    own = state.arguments
    try:
        with follower.file(whole):
            follower.statements(tree.children("Stmts"), state)
    except Return:
        pass
    finally:
        state.sources = outer_sources
        # `set` in the file stays, outside of functions
        if len(items) > 2 and (state.arguments is own or state.scopes):  # noqa: PLR2004
            _restore_arguments(before, state)
    follower.findings.note(line, f"sources `{path}`", "followed")


def activates(follower: Follower, activate: Callable[[], bool | None], line: int) -> bool:
    """Whether an environment is activated: as keys of the job, or before the start."""
    try:
        done = activate()
    except Unresolved as e:
        outcome = f"{USER}: activate it before the start, or add `conda:` and `conda_root:`"
        follower.findings.note(line, f"activates {e.reason}", outcome)
        return True
    if done is not False:
        follower.findings.note(line, "prepares an environment", "`venv:`, `conda:` or `python:`")
    return done is not False


def evaluate(follower: Follower, items: Sequence[Item], command: SyntaxNode, state: State) -> None:
    """Follow `eval` of a text that is in the script."""
    try:
        text = _evaluated(items[1:], state)
    except Unresolved:
        calls = [literal_words(n)[:1] for n in command.walk() if n.kind == "CallExpr"]
        if not any(call and environments.is_hook(call[0]) for call in calls):
            raise
        state.status = 0
        follower.findings.note(command.line, "prepares an environment", NOTHING)
        return
    tree = follower.parse_text(text, "`eval`", command.line)
    state.status = 0
    follower.statements(tree.children("Stmts"), state)


def _evaluated(items: Sequence[Item], state: State) -> str:
    """Return the text of `eval`, with a variable for what differs. Raises Unresolved."""
    texts, reasons = list[str](), list[Unresolved]()
    for item in items:
        if isinstance(item, str):
            texts.append(item)
        elif item.is_caller_value:  # it is read as text of the shell
            raise item.as_unmarked()
        elif isinstance(item.content, str) and not _NOT_READ_AGAIN.search(item.content):
            reasons.append(item)
            state.variables[_DIFFERENT_VALUE] = Variable(combined(reasons, DIFFERENT))
            texts.append(item.content.replace(DIFFERENT, f"${{{_DIFFERENT_VALUE}}}"))
        else:
            raise item.as_unmarked()
    return " ".join(texts)


def trap(follower: Follower, command: SyntaxNode, state: State) -> None:
    """Note `trap`; what it runs is looked at when all functions are known."""
    state.status = 0
    words = [word for word in command.children("Args") if not (word.literal or "").startswith("-")]
    if len(words) > 2 or (len(words) == 2 and words[1].literal is None):  # noqa: PLR2004 - a signal
        follower.traps.append(follower.parse_text(_shown(words[1]), "`trap`", command.line))
    follower.findings.note(
        command.line, "cleans up with `trap`", "left out: the job's processes end with it"
    )


def _shown(word: SyntaxNode) -> str:
    """Return the text of a word, with `VALUE` for what is expanded."""
    texts = []
    for part in word.children("Parts"):
        if part.kind == "DblQuoted":
            texts.append(_shown(part))
        else:
            texts.append(part.text("Value") if part.kind in ("Lit", "SglQuoted") else "VALUE")
    return "".join(texts)


def check_traps(follower: Follower, state: State) -> None:
    """Refuse a launch in a trap, which runs when the script ends. Raises Stop."""
    for tree in follower.traps:
        effect = effects.of_nodes([tree], state)
        if effect.launch:
            raise Stop("a launch in a `trap`", tree.line, "import it as a script of its own")


# -- in a shell of its own -------------------------------------------------------------------------


class ShellCall(NamedTuple):
    """A call such as `bash -e script.sh a b`."""

    options: list[list[str]]  # as arguments of `set`
    is_login: bool
    text: Item | None  # of `-c`
    words: list[Item]  # script or `$0`, and arguments
    runs: bool  # False: as `bash --version`


def shell_call(items: Sequence[Item], line: int) -> ShellCall:
    """Return the parts of a call of a shell. Raises Stop for options that are not followed."""
    rest, options = list(items[1:]), list[list[str]]()
    is_text, is_login, reads_input, runs = False, False, False, True
    while rest and isinstance(rest[0], str) and re.match(r"[-+].", rest[0]):
        word = str(rest.pop(0))
        if word == "--":
            break
        is_login = is_login or word == "--login" or re.match(r"-\w*l", word) is not None
        if word in ("--login", "--norc", "--noprofile", "--noediting"):
            continue
        if word in ("--version", "--help"):
            runs = False
        elif not re.fullmatch(r"[-+][abefhlmpuvxBCEHPTcsiokn]+", word):
            raise Stop(f"`{items[0]} {word}`", line)
        is_text = is_text or "c" in word
        reads_input = reads_input or "s" in word
        runs = runs and "n" not in word
        letters = re.sub(r"[csil]", "", word[1:])
        if letters and runs:
            name = [str(rest.pop(0))] if "o" in letters and rest else []
            options.append([word[0] + letters, *name])
    if reads_input:
        rest = []
    text = rest.pop(0) if is_text and rest else None
    return ShellCall(options, is_login, text, rest, runs)


def shell(follower: Follower, items: Sequence[Item], line: int, state: State) -> None:
    """Follow a shell that runs a script or a text of the script."""
    name = os.path.basename(str(items[0]))
    if name not in SHELLS:
        if items[1:2] == ["--version"]:
            return
        raise Stop(f"it starts `{name}`, whose language is not followed", line)
    call = shell_call(items, line)
    if not call.runs:
        state.status = 0
    elif call.is_login:
        raise Stop(f"`{name}` with the startup files of whoever starts it", line)
    elif call.text is not None:
        _text(follower, name, call, line, state)
    elif not call.words:
        _input(follower, name, line, state)
    else:
        failure = next((item for item in call.words if isinstance(item, Unresolved)), None)
        if failure is not None:
            raise failure
        words = [str(word) for word in call.words]
        script(follower, words, line, state, call.options, is_posix=name != "bash")


def _text(follower: Follower, name: str, call: ShellCall, line: int, state: State) -> None:
    if isinstance(call.text, Unresolved):
        raise call.text
    tree = follower.parse_text(str(call.text), f"`{name} -c`", line)
    inner = _child(state, call.options)
    if name != "bash":
        check_posix(tree, f"`{name} -c`", line)
        inner.options.add("sh")
    inner.script = str(call.words[0]) if call.words else name
    _set_arguments(call.words[1:], tree, inner)
    inner.sources = ()
    _run(follower, tree, inner, state)


def _input(follower: Follower, name: str, line: int, state: State) -> None:
    """Refuse commands that a shell reads from its input, if they may launch."""
    if isinstance(state.input, Unresolved):
        raise Stop(f"`{name}` runs {state.input.reason}", line)
    if state.input is None:
        raise Stop(f"`{name}` runs what it reads from the terminal", line)
    tree = follower.parse_text(state.input, f"the input of `{name}`", line)
    if effects.of_nodes([tree], state).launch:
        raise Stop(f"a launch in the input of `{name}`", line, "import it as a script of its own")
    state.status, state.input = None, ""
    follower.findings.note(line, f"runs what `{name}` reads", USER)


def script(
    follower: Follower, words: Sequence[str], line: int, state: State,
    options: Sequence[list[str]] = (), *, is_posix: bool,
) -> None:  # fmt: skip
    """Follow another script: its path and its arguments."""
    path = words[0]
    whole = os.path.join(state.where(), path)
    if not os.path.isfile(whole):
        if not os.path.isabs(path):
            follower.findings.absent.append(path)
        raise Stop(
            f"it starts the script `{path}`, which is not there", line, "import that script itself"
        )
    if os.path.realpath(whole) in follower.files or follower.depth > DEEPEST:
        raise Stop(f"it starts itself again: `{path}`", line)
    if os.path.normpath(whole) in state.files:
        raise Stop(f"it writes the script `{path}`, and starts it", line)
    tree = follower.parse_file(whole, path, line, posix=is_posix)
    inner = _child(state, options)
    if is_posix:
        inner.options.add("sh")
    inner.script, inner.sources = path, (path,)
    _set_arguments(words[1:], tree, inner)
    with follower.file(whole):
        _run(follower, tree, inner, state)
    follower.findings.note(line, f"starts the script `{path}`", "followed")


def program(follower: Follower, items: Sequence[Item], line: int, state: State) -> None:
    """Follow a script of a shell that is started by its path."""
    failure = next((item for item in items if isinstance(item, Unresolved)), None)
    if failure is not None:
        raise failure
    words = [str(item) for item in items]
    first = first_line(os.path.join(state.where(), words[0]))
    options = shebang_options(first, line)
    script(follower, words, line, state, options, is_posix=posix.is_posix_script(first))


def shebang_options(first: str, line: int) -> list[list[str]]:
    """Return the options of a first line such as `#!/bin/bash -eu`."""
    match = re.match(r"#! ?\S*/(?:env +)?(?:bash|sh|dash) +(-\S+)", first)
    return shell_call(["bash", match[1]], line).options if match else []


def _child(state: State, options: Sequence[list[str]]) -> State:
    """Return the state of a shell that is started as a program: it has what is exported."""
    inner = state.fork()
    inner.variables = {
        name: Variable(v.content, is_exported=True)
        if v.is_exported and v.content is not None and not isinstance(v.content, dict)
        else Variable(None)
        for name, v in state.variables.items()
        if v.is_exported or name in state.caller.environ
    }
    if "BASH_ENV" in inner.variables:
        raise Stop("a shell that reads `$BASH_ENV` first", state.line)
    if "IFS" in inner.variables:  # its value is none of the parent's
        inner.variables["IFS"] = Variable(" \t\n", is_exported=True)
    names = state.exported_functions
    inner.functions = {n: f for n, f in state.functions.items() if n in names}
    inner.options, inner.scopes, inner.stack = set(), [], ()
    inner.maps = inner.constants = inner.exported_later = frozenset()
    inner.is_condition = False
    for arguments in options:
        builtins.run(["set", *arguments], inner)
    return inner


def _run(follower: Follower, tree: SyntaxNode, inner: State, state: State) -> None:
    inner.status = 0
    guards, traps = follower.guards, follower.traps
    follower.guards, follower.traps = 0, []
    try:
        follower.to_exit(tree.children("Stmts"), inner)
        check_traps(follower, inner)
    finally:
        follower.guards, follower.traps = guards, traps
    state.status, state.input = inner.status, inner.input


def check_posix(tree: SyntaxNode, what: str, line: int) -> None:
    """Refuse a script of `sh` that dash reads otherwise than bash. Raises Stop."""
    difference = posix.first_difference(tree)
    if difference is not None:
        reason = f"{what} with {difference.construct}, which not every `sh` reads as bash does"
        raise Stop(reason, line or difference.line, "name bash in its first line, and start it so")
