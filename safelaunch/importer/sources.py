"""Shell text that makes a value of the script anew, in `setup:` of the job.

`setup:` runs before the variables and the environment of the job are set, without the variables of
a scheduler, and knows no variable or function of the script. A text that needs any of them is none.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from safelaunch.importer import activities
from safelaunch.importer.findings import Unresolved, ValueSource
from safelaunch.importer.state import DIFFERING, NAME, SEARCH_PATHS
from safelaunch.importer.syntax import literal_words

if TYPE_CHECKING:
    from safelaunch.importer.state import Content, State
    from safelaunch.importer.syntax import SyntaxNode

_LONGEST = 1024  # characters of a line of `setup:`
_PLAIN = re.compile(r"[\w./:@%+,-]*", re.ASCII)
_KINDS = frozenset((
    "", "Lit", "SglQuoted", "DblQuoted", "CmdSubst", "CallExpr", "BinaryCmd", "ParamExp",
    "ArithmExp", "BinaryArithm", "ParenArithm", "Word",
))  # fmt: skip
_ASSIGNING = frozenset(("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="))
# print the same at each call on a machine
_STEADY = frozenset((
    "which", "command", "dirname", "basename", "realpath", "readlink", "hostname", "nproc", "uname",
    "whoami", "id", "nvidia-smi", "pwd", "echo", "printf", "wc", "head", "tail", "tr", "cut", "sed",
    "awk", "grep", "expr", "seq", "sort",
))  # fmt: skip
# read no variable of the environment but those that change programs of any kind
_PLAIN_PROGRAMS = _STEADY | frozenset((
    "date", "shuf", "uuidgen", "od", "mktemp", "git", "ls", "cat", "true", "lsof", "ss", "netstat",
    "ifconfig", "ip", "free", "ps", "cksum", "md5sum", "sha256sum", "openssl", "find",
))  # fmt: skip
_CHANGES_PROGRAMS = re.compile(
    r"PATH|HOME|TZ|LANG|LANGUAGE|TMPDIR|BASH_ENV|ENV|POSIXLY_CORRECT|(LC|LD|GIT|BASH|AWK)_.*"
)
# say what only the shell of the script knows, run its functions, or change variables
_OF_SHELL = frozenset((
    "eval", "source", ".", "exec", "builtin", "set", "shopt", "unset", "read", "mapfile", "getopts",
    "readarray", "trap", "alias", "unalias", "hash", "type", "jobs", "fc", "history", "dirs", "let",
    "caller", "times", "ulimit", "umask", "compgen", "complete", "enable", "bind", "shift", "pushd",
    "popd", "return", "wait", "bg", "fg", "disown", "kill", "help", "env", "printenv", "xargs",
    "bash", "sh", "dash", "zsh", "ksh", "time", "nohup", "setsid", "timeout", "parallel", "test",
    "[", "envsubst", "scontrol", "squeue", "srun", "sbatch", "salloc", "sacct", "sinfo", "sstat",
))  # fmt: skip
_SCHEDULER = re.compile(
    r"SLURM|PMI|OMPI|PBS|LSB_|MASTER_|WORLD_SIZE|RANK|NODE_|NPROC|environ|getenv"
)


def with_source(why: Unresolved, node: SyntaxNode, state: State) -> Unresolved:
    """Return the value of an assignment with the text that makes it, if there is such a text."""
    value, folder = node.child("Value"), state.folder
    is_whole = not any(map(node.has, ("Append", "Index"))) and not why.is_caller_value
    if value is None or not is_whole or not isinstance(folder, str):
        return why
    if {"noglob", "sh", "shopt"} & state.options or "IFS" in state.variables:
        return why
    before = tuple(line for line, _ in state.setup)
    draws = _draws(value, state)
    text = None if draws is None else _text(value, before, state)
    if draws is None or not text or len(text) > _LONGEST or _SCHEDULER.search(text):
        return why
    anew = why.with_content(why.content, ValueSource(text, folder, before), draws)
    if not draws and _is_steady(value):
        anew.draws = frozenset()
    return anew


def _draws(value: SyntaxNode, state: State) -> frozenset[int] | None:
    """Return the draws of the variables of a value; None where one would be drawn twice."""
    draws = set[int]()
    for part in value.walk():
        variable = state.variables.get(part.text("Param")) if part.kind == "ParamExp" else None
        content = None if variable is None else variable.content
        if isinstance(content, Unresolved):
            if draws & content.draws:
                return None
            draws |= content.draws
    return frozenset(draws)


def _text(value: SyntaxNode, before: tuple[str, ...], state: State) -> str | None:
    """Return the text of a value with what stands for its variables; None if nothing does."""
    parts, start = list[tuple[int, int, str]](), value.span[0]
    for part in value.walk():
        if not _is_self_contained(part, state):
            return None
        if part.kind != "ParamExp" or _is_everywhere(part, state):
            continue
        variable = state.variables.get(part.text("Param"))
        own = None if variable is None else _inserted(part, variable.content, before, state)
        if own is None:
            return None
        parts.append((part.span[0] - start, part.span[1] - start, own))
    return _spliced(value.text("Source"), parts)


def _spliced(text: str, parts: list[tuple[int, int, str]]) -> str | None:
    """Return a text with others in place of its parts; None where they could run together."""
    content = text.encode()
    for first, last, own in sorted(parts, reverse=True):
        left, right = content[:first].decode(), content[last:].decode()
        if re.search(r"[$\\]$|\\\$\w+$", left) or re.match(r"[<>[]", right):
            return None
        if re.match(r"\w", own or right):
            left = _bounded(left)
        content = (left + (_bounded(own) if re.match(r"\w", right) else own) + right).encode()
    return content.decode()


def _bounded(text: str) -> str:
    """Return a text whose last variable ends where it ends, whatever is put behind it."""
    return re.sub(r"\$([A-Za-z_]\w*)$", r"${\1}", text)


def _is_everywhere(part: SyntaxNode, state: State) -> bool:
    """Whether `$x` is the same, or of the same kind, in every bash."""
    name = part.text("Param")
    if part.has("Excl") or (part.has("Exp") and name not in SEARCH_PATHS and _assigns(part)):
        return False
    return name == "$" or (name not in state.variables and name in DIFFERING | SEARCH_PATHS)


def _assigns(part: SyntaxNode) -> bool:
    expression = part.child("Exp")
    return expression is not None and expression.text("Op") in ("=", ":=", "?", ":?")


def _inserted(
    part: SyntaxNode, content: Content | None, before: tuple[str, ...], state: State
) -> str | None:
    """Return what stands for `$x` of the script outside of it; None if nothing does."""
    if any(map(part.has, ("Exp", "Slice", "Repl", "Length", "Excl", "Index"))):
        return None
    if isinstance(content, Unresolved):
        source = content.source
        if source is None or set("\"'\\`~*?[\n") & set(source.text):
            return None
        return source.text if (source.folder, source.before) == (state.folder, before) else None
    return content if isinstance(content, str) and _PLAIN.fullmatch(content) else None


def _is_self_contained(part: SyntaxNode, state: State) -> bool:
    """Whether a part of a value is the same outside of the script, but for its variables."""
    if part.kind not in _KINDS or part.has("Coprocess") or part.has("Background"):
        return False
    if part.kind == "Lit":  # braces are expanded behind `export` alone; `~` is the script's HOME
        text = part.text("Value")
        return "{" not in text and not ("~" in text and "HOME" in state.variables)
    if part.kind in ("ArithmExp", "BinaryArithm"):
        literals = {inner.text("Value") for inner in part.walk() if inner.kind == "Lit"}
        names = {name for text in literals for name in NAME.findall(text)}
        operator = part.text("Op") if part.kind == "BinaryArithm" else ""
        return names <= DIFFERING - state.variables.keys() and operator not in _ASSIGNING
    if part.kind == "CallExpr":
        return not part.children("Assigns") and _runs_anywhere(part, state)
    targets = [redirect.child("Word") for redirect in part.children("Redirs")]
    return all(
        target is not None and target.literal in ("/dev/null", "1", "2") for target in targets
    )


def _runs_anywhere(call: SyntaxNode, state: State) -> bool:
    """Whether a command needs no variable, function or environment of the script."""
    words = literal_words(call)
    name = os.path.basename(words[0]) if words else ""
    if not words or words[0] == "VALUE" or name in _OF_SHELL or state.input not in (None, ""):
        return False
    if set(words) & set(state.functions) or state.interpreter:
        return False
    if (name == "command") != (words[1:2] == ["-v"]) and name in ("command", "printf"):
        return False
    exported = {n for n, v in state.variables.items() if v.is_exported or n in state.caller.environ}
    if name in _PLAIN_PROGRAMS and name == words[0]:
        return not any(map(_CHANGES_PROGRAMS.fullmatch, exported))
    return not exported and (name.startswith("python") or not activities.is_launch(words))


def _is_steady(value: SyntaxNode) -> bool:
    """Whether a text makes the same value each time on a machine."""
    names = [literal_words(n)[0] for n in value.walk() if n.kind == "CallExpr"]
    literals = {n.text("Value") for n in value.walk() if n.kind == "Lit"}
    drawn = {n.text("Param") for n in value.walk() if n.kind == "ParamExp"} | literals
    return set(names) <= _STEADY and not drawn & ((DIFFERING - {"HOSTNAME"}) | {"$"})
