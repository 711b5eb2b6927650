"""Redirections and pipes: where the output of a launch goes, and what a command reads."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.importer import activities
from safelaunch.importer.findings import Redirection, Stop, Unresolved
from safelaunch.importer.shell import effects
from safelaunch.importer.syntax import literal_words
from safelaunch.importer.words import expansion

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.importer.state import State
    from safelaunch.importer.syntax import SyntaxNode

_TO_FILE = (">", ">>", ">|", "&>", "&>>")
_APPENDING = (">>", "&>>")
_SINKS = frozenset(("/dev/null", "/dev/stderr", "/dev/tty"))
_STDOUT = frozenset(("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"))


def apply(redirect: SyntaxNode, statement: SyntaxNode, state: State) -> None:
    """Apply one redirection of a statement."""
    operator, number, word = redirect.text("Op"), redirect.text("N"), redirect.child("Word")
    if operator in ("<<", "<<-"):
        _here_document(redirect, statement, state)
    elif operator == "<<<":
        state.input = _or_unresolved(lambda: expansion.text(word, state) + "\n")
    elif operator in ("<", "<>", "<&"):
        is_null = word is not None and word.literal == "/dev/null"
        _check_input(operator, word, state)
        state.input = "" if is_null else state.fail("what it reads from a file")
    elif number in ("", "1") or operator.startswith("&"):
        _output(operator, word, state)


def _output(operator: str, word: SyntaxNode | None, state: State) -> None:
    target = _or_unresolved(lambda: _single(word, state))
    if (operator == ">&" and target == "1") or target in _STDOUT:
        return
    state.output = [] if state.output is not None else None  # a `$(...)` gets nothing of it
    if operator == ">&" and (isinstance(target, Unresolved) or target in ("2", "-")):
        return
    if isinstance(target, Unresolved):
        calls = word.walk() if word is not None else ()
        tee = next((n for n in calls if literal_words(n)[:1] == ["tee"]), None)
        if tee is not None:  # `> >(tee log)`
            state.redirection = of_tee(tee, state)
        elif word is not None and effects.of_nodes([word], state).launch:
            raise Stop("a launch in `>(...)`", state.line)
        else:
            state.redirection = replace(state.redirection, reader="a file of a changing name")
        return
    if isinstance(state.folder, str):
        path = os.path.normpath(os.path.join(state.folder, target))
        state.files.add(path)
        folder = os.path.dirname(path)
        # below a folder that is taken as there nobody knows what is
        is_below = not os.path.isabs(target) and not os.path.isdir(state.folder)
        if not is_below and not os.path.isdir(folder) and folder not in state.folders:
            state.redirection = replace(state.redirection, missing=os.path.dirname(target))
    if target != "/dev/null":
        appends = operator in _APPENDING
        state.redirection = replace(state.redirection, log=target, appends=appends)


def _single(word: SyntaxNode | None, state: State) -> str:
    """Return the file of a redirection. Raises Stop where bash would not run the command."""
    fields = expansion.fields(word, state) if word is not None else []
    if len(fields) != 1:
        raise Stop("a redirection to several files, or to none", state.line)
    return fields[0]


def _check_input(operator: str, word: SyntaxNode | None, state: State) -> None:
    """Refuse the input of a file that is not there: bash would not run the command."""
    name = word.literal if word is not None else None
    if operator != "<" or name is None or isinstance(state.folder, Unresolved):
        return
    path = os.path.normpath(os.path.join(state.folder, name))
    if not os.path.exists(path) and path not in state.files:
        raise Stop(f"the input `{name}`, which is not there", state.line)


def of_pipe(right: SyntaxNode, state: State) -> Redirection:
    """Return where the output of a launch goes through a pipe into these commands."""
    reader = next((n for n in right.walk() if n.kind == "CallExpr"), None)
    literal = literal_words(reader) if reader is not None else []
    if reader is not None and literal[:1] == ["tee"]:
        return of_tee(reader, state)
    program = f"`{literal[0]}`" if literal else "another program"
    return replace(state.redirection, reader=program)


def of_tee(command: SyntaxNode, state: State) -> Redirection:
    """Return the log that `tee` writes."""
    items = [_or_unresolved(lambda a=a: expansion.text(a, state)) for a in command.children("Args")]  # type: ignore[misc]
    names = [item for item in items[1:] if item not in ("-a", "-i")]
    if len(names) == 1 and isinstance(names[0], str):
        return Redirection(names[0], appends="-a" in items)
    return Redirection(reader="`tee`")


def output_of_tee(
    statement: SyntaxNode, text: list[str | Unresolved], state: State
) -> list[str | Unresolved]:
    """Return what `tee` hands on of a text."""
    command = statement.child("Cmd")
    arguments = command.children("Args")[1:] if command is not None else []
    names = [_or_unresolved(lambda a=a: expansion.text(a, state)) for a in arguments]  # type: ignore[misc]
    for name in names:
        other = isinstance(name, Unresolved) or (name[:1] == "-" and name not in ("-a", "-i"))
        if other or (str(name).startswith(("/dev/", "/proc/")) and name not in _SINKS):
            return [state.fail("the output of `tee`")]
    for redirect in statement.children("Redirs"):
        word = redirect.child("Word")
        if redirect.text("N") == "2":
            continue
        if redirect.text("Op") in (">", "&>") and word is not None and word.literal == "/dev/null":
            return []
        return [state.fail("the output of `tee`")]
    return text


def _here_document(redirect: SyntaxNode, statement: SyntaxNode, state: State) -> None:
    word, content = redirect.child("Word"), redirect.child("Hdoc")
    raw = word.children("Parts") if word is not None else []
    quoted = any(part.kind != "Lit" or "\\" in part.text("Value") for part in raw)

    def read() -> str:
        text = expansion.document(content, state, quoted=quoted)
        strip = redirect.text("Op") == "<<-"
        return re.sub(r"^\t+", "", text, flags=re.MULTILINE) if strip else text

    state.input = _or_unresolved(read)
    text = "".join(n.text("Value") for n in content.walk()) if content is not None else ""
    command = statement.child("Cmd")
    program = ((literal_words(command) if command is not None else []) or [""])[0]
    to_file = any(r.text("Op") in _TO_FILE for r in statement.children("Redirs"))
    may_launch = activities.is_mentioned(text) if to_file else activities.may_launch(program, text)
    if may_launch and (to_file or program not in ("cat", "read", ":")):
        raise Stop(
            f"a launch in a here-document for `{program}`",
            redirect.line,
            "import that text as a script of its own",
        )


def _or_unresolved(read: Callable[[], str]) -> str | Unresolved:
    try:
        return read()
    except Unresolved as e:
        return e
