"""What statements that are not followed could change: variables, the folder, launches."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from safelaunch.importer import activities

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from safelaunch.importer.state import State
    from safelaunch.importer.syntax import SyntaxNode

_READERS = frozenset(("read", "mapfile", "readarray", "getopts", "unset"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(slots=True)
class Effects:
    """What statements may change."""

    names: set[str] = field(default_factory=set)
    launch: str | None = None
    stop: str | None = None  # what cannot be left out
    forgets: bool = False
    folder: bool = False
    arguments: bool = False
    options: bool = False

    @property
    def only_sources(self) -> bool:
        """Whether files are sourced, and nothing else is changed."""
        others = (self.names, self.launch, self.stop, self.folder, self.arguments, self.options)
        return self.forgets and not any(others)


def literal_words(node: SyntaxNode) -> list[str]:
    """Return the words of a command; `VALUE` for those that are expanded."""
    if node.kind != "CallExpr":
        return []
    literals = [word.literal for word in node.children("Args")]
    return ["VALUE" if text is None else text.replace("\\\n", "") for text in literals]


def of_nodes(nodes: Iterable[SyntaxNode], state: State) -> Effects:
    """Return the effects of statements, with those of the functions that they call."""
    effects = Effects()
    _collect(nodes, state, effects, set())
    return effects


def _collect(
    nodes: Iterable[SyntaxNode], state: State, effects: Effects, functions: set[str]
) -> None:
    for top in nodes:
        for node in top.walk():
            _variables(node, effects)
            _command(node, effects)
            name = (literal_words(node) or [""])[0]
            if name in state.functions and name not in functions:
                functions.add(name)
                _collect([state.functions[name]], state, effects, functions)


def _variables(node: SyntaxNode, effects: Effects) -> None:
    if node.kind == "CallExpr" and not node.children("Args"):
        effects.names |= {a.text("Name") for a in node.children("Assigns")}
    elif node.kind == "DeclClause":
        names = {a.text("Name") for a in node.children("Args")} - {""}
        effects.names |= names
        effects.forgets = effects.forgets or any(
            not a.text("Name") and (w := a.child("Value")) and w.literal is None
            for a in node.children("Args")
        )
    elif node.kind == "WordIter":
        effects.names.add(node.text("Name"))
    elif node.kind in ("UnaryArithm", "BinaryArithm"):
        operator, target = node.text("Op"), node.child("X")
        changes = operator in ("++", "--") or (
            operator.endswith("=") and operator not in ("==", "!=", "<=", ">=")
        )
        name = target.literal if target is not None else None
        if changes and name:
            effects.names.add(name)
    elif node.kind == "ParamExp":
        expression = node.child("Exp")
        if expression is not None and expression.text("Op") in ("=", ":="):
            effects.names.add(node.text("Param"))


def _command(node: SyntaxNode, effects: Effects) -> None:  # noqa: C901 - a case for each builtin
    if node.kind == "FuncDecl":
        effects.stop = effects.stop or f"the function `{node.text('Name')}`"
    literal = literal_words(node)
    if not literal:
        return
    name, arguments = literal[0], literal[1:]
    if activities.is_launch(literal) or name == "VALUE" or _runs_script(literal):
        effects.launch = effects.launch or (name if name != "VALUE" else "a command in a variable")
    elif name in _READERS:
        effects.names |= {a for a in arguments if _NAME.fullmatch(a)}
    elif name == "printf" and arguments[:1] == ["-v"]:
        effects.names |= set(arguments[1:2])
    elif name in ("eval", "source", "."):
        if any(map(activities.is_mentioned, arguments)) or name == "eval":
            effects.launch = effects.launch or name
        effects.forgets = True
    elif name in ("cd", "pushd", "popd"):
        effects.folder = True
    elif name in ("set", "shift"):
        effects.arguments = effects.arguments or name == "shift" or not _is_option(arguments)
    elif name == "shopt":
        effects.options = True
    elif name in ("break", "continue", "return", "exec", "exit", "trap"):
        effects.stop = effects.stop or f"`{name}`"


def _is_option(arguments: Sequence[str]) -> bool:
    return bool(arguments) and all(a[:1] in "-+" or a == "pipefail" for a in arguments)


def _runs_script(literal: Sequence[str]) -> bool:
    name = literal[0].rpartition("/")[2]
    runs = name in ("bash", "sh", "srun", "sbatch") and len(literal) > 1
    return runs or ("/" in literal[0] and name.endswith((".sh", ".py")))


def ends_script(branch: Sequence[SyntaxNode], state: State) -> bool:
    """Whether statements end in `exit`."""
    last = branch[-1].child("Cmd") if branch else None
    if last is None:
        return False
    if last.kind == "Block":
        return ends_script(last.children("Stmts"), state)
    literal = literal_words(last)
    if literal[:1] == ["exit"]:
        return True
    body = state.functions.get(literal[0]) if literal else None
    return body is not None and ends_script([body], state)


def names_to_preset(tree: SyntaxNode, answers: Mapping[str, str]) -> set[str]:
    """Return the names that a script reads from its caller: not assigned, or by `X=${X:-y}`."""
    assigned: dict[str, bool] = {}
    for node in tree.walk():
        for item in (*node.children("Assigns"), *node.children("Args")):
            name = item.text("Name")
            if name in answers and item.has("Value"):
                own = any(n.kind == "ParamExp" and n.text("Param") == name for n in item.walk())
                assigned[name] = assigned.get(name, True) and own
    return {name for name in answers if assigned.get(name, True)}
