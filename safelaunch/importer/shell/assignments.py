"""Assignments: `x=1`, arrays and maps, `export`, `declare`, `local`, `readonly`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.importer import activities
from safelaunch.importer.findings import Stop, Unresolved, UnsetName, ValueSource
from safelaunch.importer.shell import effects
from safelaunch.importer.state import DIFFERING, NAME, SEARCH_PATHS
from safelaunch.importer.words import expansion

if TYPE_CHECKING:
    from safelaunch.importer.state import Array, Content, State
    from safelaunch.importer.syntax import SyntaxNode

_LONGEST_SOURCE = 1024  # characters of a line of `setup:`
_PLAIN = re.compile(r"[\w./:@%+,-]*", re.ASCII)


def assign(node: SyntaxNode, state: State) -> None:
    """Do one assignment of the script."""
    state.assign(node.text("Name"), evaluate(node, state))


def evaluate(node: SyntaxNode, state: State) -> Content:
    """Return what an assignment would give its variable."""
    state.line = node.line or state.line
    reasons: list[Unresolved] = []
    try:
        with state.marking(reasons):
            content = _content(node, node.text("Name"), state)
        if not reasons:
            return content
        return reasons[0].with_content(content, _source(node, state))
    except UnsetName as e:
        state.ask(e)
        return e
    except Unresolved as e:
        return e.with_content(None, _source(node, state))
    except Stop as e:
        return Unresolved(e.reason, e.line or state.line)


def _content(node: SyntaxNode, name: str, state: State) -> str | Array:
    """Return the new content of a variable, perhaps with `DIFFERENT` in it. Raises Unresolved."""
    index, elements, word = node.child("Index"), node.child("Array"), node.child("Value")
    appends = node.has("Append")
    variable = state.variables.get(name)
    content = variable.content if variable is not None else None
    is_array = isinstance(content.content if isinstance(content, Unresolved) else content, dict)
    old = _old_content(name, state) if appends or index is not None or is_array else None
    before: Array = old if isinstance(old, dict) else {0: old} if isinstance(old, str) else {}
    if elements is not None:
        items = elements.children("Elems")
        if name in state.maps:
            pairs = [(e.child("Index"), e.child("Value")) for e in items]
            if not all(key for key, _ in pairs):
                raise state.fail("an element of a map without its key")
            new_map: Array = {expansion.key(k, state): expansion.text(v, state) for k, v in pairs}
            return before | new_map if appends else new_map
        new = expansion.array(items, state)
        start = max((int(key) for key in before), default=-1) + 1 if appends else 0
        return before | {start + int(k): v for k, v in new.items()} if appends else new
    path = expansion.search_path(name, word, state) if word is not None and index is None else None
    value = expansion.text(word, state) if path is None else path
    if index is None and not isinstance(old, dict):
        return (old if isinstance(old, str) else "") + value
    key: int | str = 0
    if index is not None:
        key = (
            expansion.key(index, state) if name in state.maps else expansion.calculate(index, state)
        )
    if isinstance(key, int) and key < 0:
        raise state.fail("an element from the end of an array")
    return before | {key: (before.get(key, "") if appends else "") + value}


def _source(node: SyntaxNode, state: State) -> ValueSource | None:
    """Return what bash needs to make a value anew; None if it needs the rest of the script."""
    value, folder = node.child("Value"), state.folder
    if value is None or any(map(node.has, ("Append", "Index"))) or not isinstance(folder, str):
        return None
    text, start = value.text("Source").encode(), value.span[0]
    inserted: list[tuple[int, int, str]] = []
    for part in value.walk():
        if part.kind == "ParamExp":
            own = _inserted(part, state)
            if own is None:
                return None
            inserted.append((part.span[0] - start, part.span[1] - start, own))
        elif not _is_self_contained(part, state):
            return None
    if len(text) + sum(len(own) for _, _, own in inserted) > _LONGEST_SOURCE:
        return None
    for first, last, own in sorted(inserted, reverse=True):
        text = text[:first] + (own.encode() or text[first:last]) + text[last:]
    return ValueSource(text.decode(), folder) if text else None


def _inserted(part: SyntaxNode, state: State) -> str | None:
    """Return what stands for `$x` outside of the script; empty: itself; None if nothing does."""
    name = part.text("Param")
    variable = state.variables.get(name)
    if name in DIFFERING or name == "$" or (variable is None and name in SEARCH_PATHS):
        return ""
    if variable is None or any(map(part.has, ("Exp", "Slice", "Repl", "Length", "Excl", "Index"))):
        return None
    content = variable.content
    if isinstance(content, Unresolved) and content.source is not None:
        is_plain = not set("\"'\\") & set(content.source.text)
        return content.source.text if is_plain and content.source.folder == state.folder else None
    return content if isinstance(content, str) and _PLAIN.fullmatch(content) else None


def _is_self_contained(part: SyntaxNode, state: State) -> bool:
    """Whether a part of a value is the same outside of the script, but for its variables."""
    if part.kind == "ArithmExp":
        texts = [inner.text("Value") for inner in part.walk() if inner.kind == "Lit"]
        return {text for text in texts if NAME.fullmatch(text)} <= DIFFERING
    if part.kind == "CallExpr":
        words = effects.literal_words(part)
        if not words or words[0] in state.functions or words[0] == "VALUE":
            return False
        return words[0].startswith("python") or not activities.is_launch(words)
    targets = [redirect.child("Word") for redirect in part.children("Redirs")]
    return part.kind != "ProcSubst" and all(
        target is not None and target.literal in ("/dev/null", "1", "2") for target in targets
    )


def _old_content(name: str, state: State) -> Content | None:
    try:
        return state.default(name)
    except Unresolved as e:
        if e.content is None or state.different is None:
            raise
        state.different.append(e)
        return e.content


def declare(node: SyntaxNode, state: State) -> None:
    """Run `export`, `declare`, `local`, `readonly` or `typeset`."""
    variant, options = node.text("Variant"), ""
    # all values are expanded before the first is assigned: `export A=1 B=$A` takes the old A
    values: list[tuple[str, Content | None]] = []
    arguments = [item for a in node.children("Args") for item in expansion.arguments(a, state)]
    for argument in arguments:
        word, name = argument.child("Value"), argument.text("Name")
        if name:
            if "A" in options:
                state.maps = state.maps | {name}
            content = None if argument.has("Naked") else evaluate(argument, state)
            values.append((name, content))
            continue
        for item in expansion.fields(word, state) if word is not None else ():
            if item.startswith("-"):
                options += item[1:]
                continue
            name, equals, value = item.partition("=")
            if not NAME.fullmatch(name):
                raise Stop(f"`{variant} {item}`", state.line)
            values.append((name, value if equals else None))
    state.status = 0
    if "f" in options.lower():
        _of_functions([name for name, _ in values], variant, options, state)
        return
    for name, content in values:
        _prepare(name, variant, options, state)
        if content is not None:
            state.assign(name, content)
        _finish(name, variant, options, state, is_naked=content is None)


def _prepare(name: str, variant: str, options: str, state: State) -> None:
    if set(options) & set("nilu") and variant != "export":
        raise Stop(f"`{variant} -{options}` changes what is assigned", state.line)
    is_local = variant == "local" or (variant in ("declare", "typeset") and "g" not in options)
    if is_local and state.scopes and "p" not in options:
        state.begin_local(name)
    if "A" in options:
        state.maps = state.maps | {name}
        _make_array(name, state)


def _make_array(name: str, state: State) -> None:
    variable = state.variables.get(name)
    if variable is None or variable.content is None:
        state.assign(name, {})


def _of_functions(names: list[str], variant: str, options: str, state: State) -> None:
    """Run `export -f` or `declare -f`, which is about functions."""
    if variant == "export" and "n" not in options:
        state.exported_functions |= set(names)
    state.status = 0 if all(name in state.functions for name in names) else 1


def _finish(name: str, variant: str, options: str, state: State, *, is_naked: bool) -> None:
    if "n" in options and name in state.caller.environ and name not in state.variables:
        raise Stop("`export -n` of a variable of the caller", state.line)
    exports = variant == "export" or "x" in options
    if is_naked and "a" in options:
        _make_array(name, state)
    if exports and name not in state.variables and "n" not in options:
        if name in state.caller.environ:
            return  # the caller's own value
        state.exported_later = state.exported_later | {name}
        return
    if exports:
        state.export(name, "n" not in options)
    if variant == "readonly" or "r" in options:
        state.constants = state.constants | {name}
