"""What dash reads otherwise than bash: a script of `sh` is followed only without it.

https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html, and dash 0.5.12.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.importer.syntax import SyntaxNode

_SHEBANG = re.compile(r"#! ?\S*/(?:env +)?(?:sh|dash)(?![\w.-])")
_COMMANDS = frozenset((
    "[[", "source", "declare", "typeset", "shopt", "let", "pushd", "popd", "mapfile", "readarray",
    "builtin", "disown", "enable", "function", "select", "coproc",
))  # fmt: skip
_SPECIAL = frozenset((
    ".", ":", "eval", "exec", "exit", "export", "readonly", "return", "set", "shift", "trap",
    "unset",
))  # fmt: skip
_VARIABLES = re.compile(
    r"S?RANDOM|SECONDS|BASH\w*|FUNCNAME|HOSTNAME|E?UID|(OS|HOST|MACH)TYPE|PIPESTATUS|EPOCH\w+"
    r"|DIRSTACK|GROUPS|COLUMNS|LINES"
)
_KINDS = {
    "ArithmCmd": "`((...))`", "TestClause": "`[[`", "LetClause": "`let`",
    "CoprocClause": "`coproc`", "ProcSubst": "`<(...)`", "ExtGlob": "a pattern of `extglob`",
    "CStyleLoop": "`for ((`", "TimeClause": "`time`",
}  # fmt: skip
_OPTIONS = {
    "read": "[adnsutiN]", "printf": "v", "echo": "[eE]", "export": "[fn]", "exec": "[acl]",
    "wait": "n", "type": ".", "unset": "n",
}  # fmt: skip


class Bashism(NamedTuple):
    """A construct that dash does not read as bash does."""

    construct: str
    line: int


def is_posix_script(text: str) -> bool:
    """Whether the first line of a script names `sh`, which need not be bash."""
    return _SHEBANG.match(text) is not None


def first_difference(tree: SyntaxNode) -> Bashism | None:
    """Return the first construct of a script that dash does not read as bash does."""
    functions = {node.text("Name") for node in tree.walk() if node.kind == "FuncDecl"}
    for node in tree.walk():
        construct = next(_differences(node, functions), None)
        if construct is not None:
            return Bashism(construct, node.line)
    return None


def _differences(  # noqa: C901 - a case for each kind of node
    node: SyntaxNode, functions: set[str]
) -> Iterator[str]:
    if node.kind in _KINDS:
        yield _KINDS[node.kind]
    if node.kind in ("SglQuoted", "DblQuoted") and node.has("Dollar"):
        yield "`$'...'`"
    if node.has("Append") or (node.has("Array") and node.has("Name")):
        yield "`+=` or an array"
    if node.kind == "FuncDecl" and node.has("RsrvWord"):
        yield "`function`"
    if node.kind == "ForClause" and node.has("Select"):
        yield "`select`"
    if node.kind == "ParamExp":
        yield from _expansion(node)
    if node.kind == "CallExpr":
        yield from _command(node, functions)
    if node.kind == "DeclClause":
        yield from _declaration(node.text("Variant"), node.children("Args"))
    if node.kind in ("UnaryArithm", "BinaryArithm") and node.text("Op") in ("**", "++", "--", ","):
        yield f"`{node.text('Op')}` in an arithmetic expression"
    if node.text("Op") in ("<<<", "|&", ";&", ";;&"):
        yield f"`{node.text('Op')}`"
    if node.has("Parts") and not node.kind:
        yield from _braces(node)


def _expansion(node: SyntaxNode) -> Iterator[str]:
    expression = node.child("Exp")
    operator = expression.text("Op") if expression is not None else ""
    is_posix = not operator or operator.lstrip(":") in ("-", "=", "+", "?", "#", "##", "%", "%%")
    fields = ("Slice", "Repl", "Excl", "Index", "Names")
    if not is_posix or any(node.has(field) for field in fields):
        yield f"an expansion of `{node.text('Param')}` that only bash has"
    if _VARIABLES.fullmatch(node.text("Param")):
        yield f"`${node.text('Param')}`"


def _braces(word: SyntaxNode) -> Iterator[str]:
    plain = [part.text("Value") for part in word.children("Parts") if part.kind == "Lit"]
    if re.search(r"\{[^{}]*(,|\.\.)[^{}]*\}", "\0".join(plain)):
        yield "braces"


def _command(node: SyntaxNode, functions: set[str]) -> Iterator[str]:
    words = node.children("Args")
    literal = [word.literal or "" for word in words]
    name = literal[0] if literal else ""
    if name in _COMMANDS:
        yield f"`{name}`"
    if node.has("Assigns") and (name in _SPECIAL or name in functions):
        yield f"a variable before `{name}`"
    if name in ("[", "test") and {"==", "=~", "<", ">", "-v", "-R"} & set(literal):
        yield f"`{name}` with an operator of bash"
    if name == "echo" and any("\\" in text for text in literal):
        yield "`echo` of a backslash"
    if name == "." and (len(words) != 2 or "/" not in (literal[1] or "/")):  # noqa: PLR2004 - a file
        yield "`.` with a file of PATH, or with arguments"
    if name == "set" and "pipefail" in literal:
        yield "`set -o pipefail`"
    if name == "trap" and {"ERR", "DEBUG", "RETURN"} & set(literal):
        yield "`trap` of ERR, DEBUG or RETURN"
    options = _OPTIONS.get(name)
    if options and any(re.match(rf"-\w*{options}", text) for text in literal[1:]):
        yield f"`{name}` with an option of bash"
    if name in ("export", "readonly", "local"):
        yield from _declaration(name, words[1:])


def _declaration(variant: str, arguments: list[SyntaxNode]) -> Iterator[str]:
    if variant not in ("export", "readonly", "local"):
        yield f"`{variant}`"
    for argument in arguments:
        if variant == "local" and (argument.has("Naked") or "=" not in (argument.literal or "=")):
            yield "`local` without a value"
        word = argument.child("Value") or argument
        if any(part.kind in ("ParamExp", "CmdSubst") for part in word.children("Parts")):
            yield f"`{variant}` of a value without quotes, which older versions split"
