"""What statements that are not followed could change: variables, the folder, launches."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from safelaunch.importer import activities, questions
from safelaunch.importer.shell import programs
from safelaunch.importer.shell.builtins import BUILTINS, OPTIONS
from safelaunch.importer.shell.environments import CONDAS
from safelaunch.importer.syntax import interpreter_of, literal_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from safelaunch.importer.state import State
    from safelaunch.importer.syntax import SyntaxNode

_READERS = frozenset(("read", "mapfile", "readarray", "getopts", "unset"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(slots=True)
class Effects:
    """What statements may change."""

    names: set[str] = field(default_factory=set)
    exports: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)  # names that may get several words
    launch: str | None = None
    only_scripts: bool = True  # it starts nothing but scripts of a shell
    stop: str | None = None  # what cannot be left out
    ends: list[int] = field(default_factory=list)  # lines of branches left out, which end it
    forgets: bool = False  # any variable
    exports_all: str | None = None  # `set -a`
    sources: bool = False  # a file, which may do so too
    folder: bool = False
    folders: list[SyntaxNode] = field(default_factory=list)  # calls of `mkdir`, `git clone`
    interpreter: bool = False
    arguments: bool = False
    prints: bool = False
    returns: bool = False  # changes the folder and back, `cd a && ./b && cd -`
    writes: bool = False  # perhaps folders
    patterns: bool = False  # how patterns of files are expanded

    @property
    def only_sources(self) -> bool:
        """Whether files are sourced, perhaps between `set -a` and `set +a`, and nothing else."""
        others = (
            self.names, self.launch, self.stop, self.folder, self.interpreter, self.arguments,
            self.patterns, self.forgets,
        )  # fmt: skip
        return self.sources and not any(others)


def of_nodes(nodes: Sequence[SyntaxNode], state: State, *, is_body: bool = False) -> Effects:
    """Return the effects of statements, with those of the functions that they call.

    `return` of a body leaves nothing else, as that of a called function.

    Branches that end the script are left out, unless they launch: it is assumed to go on.
    """
    effects = Effects()
    _collect(nodes, state, effects, set(), is_body=is_body)
    return effects


def _collect(
    nodes: Sequence[SyntaxNode],
    state: State,
    effects: Effects,
    functions: set[str],
    *,
    is_body: bool = False,
) -> None:
    for top in nodes:
        ends = [
            branch
            for node in top.walk()
            for branch in _branches(node)
            if is_end(branch, state, functions)
        ]
        skipped = {statement.span for branch in ends for statement in branch}
        effects.ends += [branch[0].line for branch in ends]
        loops = [node.span for node in top.walk() if node.kind in ("ForClause", "WhileClause")]
        trips = _round_trips(top)
        effects.returns = effects.returns or bool(trips)
        for node in top.walk(skipped):
            is_return = is_body and literal_words(node)[:1] == ["return"]
            is_trip = node.kind == "CallExpr" and node.span in trips
            if _leaves_loop(node, loops) or is_trip or is_return:
                continue
            _variables(node, effects)
            _command(node, nodes, effects, state)
            effects.prints = effects.prints or _prints(node)
            name = (literal_words(node) or [""])[0]
            if name in state.functions and name not in functions:
                functions.add(name)
                body = state.functions[name].body
                _collect([body], state, effects, functions, is_body=True)


def _round_trips(top: SyntaxNode) -> set[tuple[int, int]]:
    """Return the places of each first and last `cd` of a chain such as `cd a && ./b && cd -`.

    What is between them is presumed to succeed, as programs are that do something.
    """
    trips = set[tuple[int, int]]()
    for node in top.walk():
        chain = _chain(node)
        words = [literal_words(command) for command in chain]
        if len(chain) < 2 or any(w[:1] in (["cd"], ["pushd"], ["popd"]) for w in words[1:-1]):  # noqa: PLR2004 - there and back
            continue
        goes = words[0][:1] == ["cd"] and re.fullmatch(r"(?!-)[\w./-]+", "".join(words[0][1:]))
        is_below = goes and "/" not in words[0][1] and "." not in words[0][1]
        if goes and (words[-1] == ["cd", "-"] or (is_below and words[-1] == ["cd", ".."])):
            trips |= {chain[0].span, chain[-1].span}
    return trips


def _chain(node: SyntaxNode) -> list[SyntaxNode]:
    """Return the commands of `a && b && c`; the node itself if it is none."""
    left, right = node.child("X"), node.child("Y")
    if node.kind != "BinaryCmd" or node.text("Op") != "&&" or left is None or right is None:
        return [node]
    commands = [side.child("Cmd") for side in (left, right)]
    return [item for command in commands if command is not None for item in _chain(command)]


_SILENT = frozenset((
    ":", "true", "false", "break", "continue", "return", "exit", "shift", "set", "unset", "read",
    "test", "[", "mkdir", "cd", "sleep", "wait", "kill", "rm", "mapfile", "readarray", "shopt",
))  # fmt: skip


def _prints(node: SyntaxNode) -> bool:
    """Whether a statement may write to its output."""
    command = node.child("Cmd")
    if command is None or command.kind != "CallExpr":
        return False
    for redirect in node.children("Redirs"):
        word = redirect.child("Word")
        target = (redirect.text("Op"), word.literal if word is not None else None)
        if target in ((">&", "2"), (">", "/dev/null"), ("&>", "/dev/null")):
            return redirect.text("N") == "2"
    words = literal_words(command)
    return bool(words) and words[0] not in _SILENT


def _leaves_loop(node: SyntaxNode, loops: Sequence[tuple[int, int]]) -> bool:
    """Whether a command is `break` or `continue` of a loop that is one of the statements."""
    name, *rest = literal_words(node) or [""]
    if name not in ("break", "continue") or not all(map(str.isdigit, rest[:1])):
        return False
    first, last = node.span
    enclosing = [start for start, end in loops if start <= first and last <= end]
    return len(enclosing) >= int(rest[0] if rest else 1)


def _branches(node: SyntaxNode) -> Iterator[list[SyntaxNode]]:
    """Yield the lists of statements that a node runs only in some cases."""
    if node.has("Then"):
        yield node.children("Then")
    if node.has("Patterns"):
        yield node.children("Stmts")
    right = node.child("Y")
    if node.kind == "BinaryCmd" and node.text("Op") in ("&&", "||") and right is not None:
        yield [right]


def is_end(branch: Sequence[SyntaxNode], state: State, functions: Iterable[str] = ()) -> bool:
    """Whether statements end the script, and launch nothing before."""
    if not ends_script(branch, state):
        return False
    effects = Effects()
    _collect(branch, state, effects, set(functions))
    return not effects.launch


def _variables(node: SyntaxNode, effects: Effects) -> None:
    if node.has("Name") and (node.has("Array") or _has_blank(node.child("Value"))):
        effects.texts.add(node.text("Name"))
    if node.kind == "CallExpr" and not node.children("Args"):
        effects.names |= {a.text("Name") for a in node.children("Assigns")}
    elif node.kind == "DeclClause":
        _declaration(node, effects)
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


def _has_blank(word: SyntaxNode | None) -> bool:
    parts = word.children("Parts") if word is not None else []
    inner = [part for outer in parts for part in (outer, *outer.children("Parts"))]
    return any(re.search(r"\s", part.text("Value")) for part in inner)


def _declaration(node: SyntaxNode, effects: Effects) -> None:
    arguments = node.children("Args")
    words = [a.child("Value") for a in arguments if not a.text("Name")]
    options = "".join((word.literal or "") for word in words if word is not None)
    if "f" in options:
        return
    names = {a.text("Name") for a in arguments} - {""}
    effects.names |= names
    if node.text("Variant") == "export" or "x" in options:
        effects.exports |= names
    others = [word for word in words if word is not None and word.literal is None]
    if node.text("Variant") == "export" and all(map(_is_output, others)):  # `export $(cat .env)`
        effects.sources = effects.sources or bool(others)
    else:
        effects.forgets = effects.forgets or bool(others)


def _is_output(word: SyntaxNode) -> bool:
    parts = word.children("Parts")
    return len(parts) == 1 and parts[0].kind == "CmdSubst"


_STOPPING = frozenset((
    "break", "continue", "return", "exec", "exit", "trap",
    "export", "declare", "local", "readonly", "typeset",  # behind `command`
))  # fmt: skip
_EXPORTING = (["-a"], ["+a"], ["-o", "allexport"], ["+o", "allexport"])
_HARMLESS_OPTIONS = re.compile(r"[-+][xvbhm]+|xtrace|verbose|[-+]o")


def _command(  # noqa: C901, PLR0912 - a case for each builtin
    node: SyntaxNode, nodes: Sequence[SyntaxNode], effects: Effects, state: State
) -> None:
    if node.kind == "FuncDecl":
        effects.stop = effects.stop or f"the function `{node.text('Name')}`"
    literal = literal_words(node)
    while literal[:1] in (["command"], ["builtin"]) and len(literal) > 1:
        literal = literal[1:]
    if not literal:
        return
    name, arguments = literal[0], literal[1:]
    is_known = name in BUILTINS or name in state.functions
    effects.writes = effects.writes or (not is_known and programs.may_make_folders(literal))
    if name == "VALUE" and _is_flag(node, nodes, state):
        return
    if name == "VALUE" or starts_something(literal, state):
        is_script = script_kind(name, state) == "shell" or name in activities.SHELLS
        effects.only_scripts = effects.only_scripts and is_script
        effects.launch = effects.launch or (name if name != "VALUE" else "a command in a variable")
    elif name in _READERS or (name == "printf" and arguments[:1] == ["-v"]):
        names = arguments[1:2] if name == "printf" else arguments
        effects.names |= {a for a in names if _NAME.fullmatch(a)} - {"VALUE"}
        effects.forgets = effects.forgets or "VALUE" in names
    elif name in ("eval", "source", "."):
        if any(map(activities.is_mentioned, arguments)) or name == "eval":
            effects.launch, effects.only_scripts = effects.launch or name, False
        effects.sources = True
    elif name in ("cd", "pushd", "popd"):
        effects.folder = True
    elif name == "mkdir" or literal[:2] == ["git", "clone"]:
        effects.folders.append(node)
    elif name == "deactivate" or (name in CONDAS and "activate" in "".join(arguments[:1])):
        effects.interpreter = True
    elif name == "set" and not _is_option(arguments):
        effects.arguments = True
    elif name == "set" and arguments in _EXPORTING:
        effects.exports_all = f"`{' '.join(literal)}`"
    elif name == "set" and not all(map(_HARMLESS_OPTIONS.fullmatch, arguments)):
        effects.stop = effects.stop or f"`{' '.join(literal)}`"
    elif name == "shift":
        effects.arguments = True
    elif name == "shopt":
        effects.patterns = True
    elif name in _STOPPING:
        effects.stop = effects.stop or f"`{name}`"


_FLAGS = frozenset(("true", "false", ":"))


def _is_flag(node: SyntaxNode, nodes: Sequence[SyntaxNode], state: State) -> bool:
    """Whether a command is `$x`, of which all values in the script are `true` or `false`."""
    words = node.children("Args")
    name = questions.parameter(words[0]) if len(words) == 1 else ""
    variable = state.variables.get(name)
    before = variable.content if variable is not None else None
    if not name or (before is not None and before not in _FLAGS):
        return False
    values = list[str | None]()
    for inner in (
        i for top in (*nodes, *(f.body for f in state.functions.values())) for i in top.walk()
    ):
        if inner.kind == "WordIter" and inner.text("Name") == name:
            return False
        if literal_words(inner)[:1] and literal_words(inner)[0] in _READERS:
            return False
        for item in (*inner.children("Assigns"), *inner.children("Args")):
            if item.text("Name") == name:
                word = item.child("Value")
                values.append(None if word is None or item.has("Append") else word.literal)
    return bool(values or before) and all(value in _FLAGS for value in values)


def _is_option(arguments: Sequence[str]) -> bool:
    return bool(arguments) and all(a[:1] in "-+" or a in OPTIONS for a in arguments)


def starts_something(words: Sequence[str], state: State) -> bool:
    """Whether a command is a launch, or starts a script that could hold one."""
    return (
        activities.is_launch(words)
        or activities.starts_by_input(words)
        or activities.starts_script(words)
        or script_kind(words[0], state) is not None
    )


def script_kind(program: str, state: State) -> str | None:
    """Return `shell`, `python`, or another interpreter of a script that is run by its path."""
    if "/" not in program:
        return None
    if program.endswith((".sh", ".bash")):
        return "shell"
    if program.endswith(".py"):
        return "python"
    folder = state.folder if isinstance(state.folder, str) else ""
    name = interpreter_of(os.path.join(folder, program))
    if name is None:
        return None
    return "shell" if name in activities.SHELLS else re.sub(r"[\d.]+$", "", name)


def ends_script(
    branch: Sequence[SyntaxNode], state: State, callers: frozenset[str] = frozenset()
) -> bool:
    """Whether statements end in `exit`."""
    if not branch or branch[-1].has("Background"):
        return False
    command = branch[-1].child("Cmd") or branch[-1]
    if command.has("Cond"):  # `if`, `elif`
        return command.has("Then") and _ends_all(command, state, callers)
    if command.kind == "Block":
        return ends_script(command.children("Stmts"), state, callers)
    literal = literal_words(command)
    if literal[:1] == ["exit"] or _fails_to_return(command, state):
        return True
    name = literal[0] if literal else ""
    if name not in state.functions or name in callers:
        return False
    return ends_script([state.functions[name].body], state, callers | {name})


def _fails_to_return(command: SyntaxNode, state: State) -> bool:
    """Whether a command is `return || exit`, outside of a function."""
    left, right = command.child("X"), command.child("Y")
    is_else = command.kind == "BinaryCmd" and command.text("Op") == "||" and not state.may_return
    inner = left.child("Cmd") if is_else and left is not None else None
    is_return = inner is not None and literal_words(inner)[:1] == ["return"]
    return is_return and right is not None and ends_script([right], state)


def _ends_all(clause: SyntaxNode, state: State, callers: frozenset[str]) -> bool:
    otherwise = clause.child("Else")
    if otherwise is None or not ends_script(clause.children("Then"), state, callers):
        return False
    if otherwise.has("Cond"):
        return _ends_all(otherwise, state, callers)
    return ends_script(otherwise.children("Then"), state, callers)
