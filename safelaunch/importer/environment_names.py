"""Lists of the names in the environment, which a script gets from `env` to unset them.

What the caller has set is unset in `setup:`, by the same text; what the script itself has set stays
where the text cannot mean it, and is else not known.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.importer.findings import Stop
from safelaunch.importer.questions import parameter
from safelaunch.importer.state import SetupLine
from safelaunch.importer.syntax import literal_words
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.importer.state import State
    from safelaunch.importer.syntax import SyntaxNode

_SOURCES = re.compile(r"env|printenv|compgen -(e|v|A export|A variable)")
_FILTERS = frozenset(("grep", "egrep", "cut", "awk", "sed", "sort", "uniq", "tr"))
_AWK_PATTERN = re.compile(r"/([^/]*)/")
_GREP_OPTIONS = frozenset(("-E", "-o", "-oE", "-Eo", "-i", "-e"))
_PREFIXES = re.compile(
    r"(?P<anchor>\^)?(?P<group>\()?(?P<names>\w+(\|\^?\w+)*)\)?\w*(\.\*|\[\^=\][*+]|=)?"
)
_SHORTEST = 3  # of a prefix: a shorter one may mean PATH, HOME and what safelaunch sets


class UnsetNames(NamedTuple):
    """The text that unsets the names of a list, and what these begin with."""

    text: str
    prefixes: Sequence[str]


def loop(command: SyntaxNode, body: Sequence[SyntaxNode], name: str) -> UnsetNames | None:
    """Return a loop over such a list that only unsets each name; None for another one."""
    items = command.children("Items")
    names = _list(items[0]) if len(items) == 1 else None
    kinds = {_kind(statement, name) for statement in body}
    if names is None or "unset" not in kinds or not kinds <= {"unset", "echo"}:
        return None
    return names._replace(text=f'for {name} in {names.text}; do unset -v "${name}"; done')


def unset(command: SyntaxNode) -> UnsetNames | None:
    """Return `unset $(env | ...)`; None for another command."""
    words = [word for word in command.children("Args")[1:] if word.literal != "-v"]
    names = _list(words[0]) if len(words) == 1 else None
    return None if names is None else names._replace(text=f"unset -v {names.text}")


def apply(names: UnsetNames, state: State) -> None:
    """Unset the names of a list: those of the caller at the start. Raises Stop."""
    answer = next((name for name in state.caller.answers if _may_fit(name, names.prefixes)), None)
    if answer is not None:
        raise Stop(f"`unset` of what `env` lists, perhaps `{answer}` of `--set`", state.line)
    why = state.fail("the names that `env` lists")
    for name, variable in [*state.variables.items()]:
        if variable.content is not None and _may_fit(name, names.prefixes):
            state.assign(name, why)
    line = SetupLine(names.text, None)
    if line not in state.setup:
        state.setup = (*state.setup, line)


def _list(word: SyntaxNode) -> UnsetNames | None:
    """Return `$(env | grep ^X | cut -d= -f1)`; None for what is no such list."""
    parts = word.children("Parts")
    statements = parts[0].children("Stmts") if len(parts) == 1 else []
    if len(statements) != 1 or parts[0].kind != "CmdSubst":
        return None
    commands = [*_commands(statements[0])]
    texts = [" ".join(words) for words in commands]
    is_list = bool(commands) and _SOURCES.fullmatch(texts[0]) is not None
    if not is_list or any(not words or words[0] not in _FILTERS for words in commands[1:]):
        return None
    prefixes = _prefixes(commands)
    text = f"$({' | '.join(' '.join(map(quote, words)) for words in commands)})"
    return None if prefixes is None else UnsetNames(text, prefixes)


def _commands(statement: SyntaxNode) -> Iterator[list[str]]:
    """Yield the words of each command of a pipe; none for a command that is more than words."""
    command = statement.child("Cmd")
    if command is None or statement.has("Negated") or statement.children("Redirs"):
        yield []
    elif command.kind == "BinaryCmd" and command.text("Op") == "|":
        for side in (command.child("X"), command.child("Y")):
            yield from _commands(side) if side is not None else [[]]
    else:
        words = literal_words(command)
        is_plain = not command.children("Assigns") and "VALUE" not in words
        escapes = any(
            "\\" in part.text("Value")
            for word in command.children("Args")
            for part in word.children("Parts")
            if part.kind == "Lit"
        )
        yield words if is_plain and not escapes else []


def _kind(statement: SyntaxNode, name: str) -> str:
    """Return `unset` for `unset "$name"`, `echo` for a message, else an empty text."""
    command = statement.child("Cmd")
    words = [] if command is None or command.kind != "CallExpr" else command.children("Args")
    program = words[0].literal if words and not statement.has("Background") else None
    if program == "unset":
        is_own = all(word.literal == "-v" or parameter(word) == name for word in words[1:])
        return program if is_own else ""
    return "echo" if program == "echo" else ""


def _prefixes(commands: Sequence[Sequence[str]]) -> list[str] | None:
    """Return what the names of a list begin with; for names alone, what is in them.

    None where a list may have any name.
    """
    patterns = list[str]()
    for words in commands:
        if words[0] in ("grep", "egrep"):
            rest = [word for word in words[1:] if not word.startswith("-")]
            if len(rest) != 1 or not {w for w in words if w.startswith("-")} <= _GREP_OPTIONS:
                return None
            patterns.append(rest[0])
        elif words[0] == "awk":
            patterns += _AWK_PATTERN.findall(" ".join(words))
    match = _PREFIXES.fullmatch(patterns[0]) if patterns else None
    if match is None or (commands[0][0] != "compgen" and not match["anchor"]):
        return None
    prefixes = re.findall(r"\w+", match["names"])
    is_anchored = match["group"] or all(part[:1] == "^" for part in patterns[0].split("|"))
    is_clear = all(len(name) >= _SHORTEST for name in prefixes)
    return prefixes if is_clear and (is_anchored or commands[0][0] == "compgen") else None


def _may_fit(name: str, prefixes: Sequence[str]) -> bool:
    return any(prefix.lower() in name.lower() for prefix in prefixes)
