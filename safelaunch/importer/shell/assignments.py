"""Assignments: `x=1`, arrays and maps, `export`, `declare`, `local`, `readonly`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.importer import sources
from safelaunch.importer.findings import Stop, Unresolved, UnsetName, combined
from safelaunch.importer.state import NAME
from safelaunch.importer.words import expansion

if TYPE_CHECKING:
    from safelaunch.importer.state import Array, Content, State
    from safelaunch.importer.syntax import SyntaxNode


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
        return sources.with_source(combined(reasons, content), node, state)
    except UnsetName as e:
        state.ask(e)
        return e
    except Unresolved as e:
        return sources.with_source(e.with_content(None), node, state)
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
