"""Values of a launch that differ at each start, such as a random port or the machine's name.

The ranks of one node meet at any free port of it, so safelaunch takes one in place of the script's.
On several nodes it must be the same port, which only the caller can say. What else a script exports
is made anew by its own text, in `setup:`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from safelaunch import launchers
from safelaunch.config.yaml_io.node import Node
from safelaunch.importer.activities import SETUP
from safelaunch.importer.findings import DIFFERENT, Note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.importer.findings import ScriptLaunch, Unresolved

_FIRST_NUMBER = 50_001
_SETTINGS = frozenset((
    "master_port", "main_process_port", "main_port", "master_addr", "main_process_ip",
    "main_address", "rdzv_endpoint", "rdzv_id", "MASTER_PORT", "MASTER_ADDR",
))  # fmt: skip
_WITH_ENDPOINT = ("rdzv_backend", "rdzv_id")  # say how ranks meet at an endpoint
_OUTCOME = "left to safelaunch, which takes a free port"


def with_numbers(launch: ScriptLaunch) -> tuple[ScriptLaunch, dict[str, Unresolved]]:
    """Return a launch with a number for each value that differs, and why that one does."""
    text = "\n".join((*launch.words, *(value or "" for value in launch.env.values())))
    unused = (str(n) for n in range(_FIRST_NUMBER, 65_536) if str(n) not in text)
    numbers = {place: next(unused) for place in launch.different}
    words = [_numbered(word, numbers.get(at)) for at, word in enumerate(launch.words)]
    env = {
        name: value if value is None else _numbered(value, numbers.get(name))
        for name, value in launch.env.items()
    }
    reasons = {numbers[place]: why for place, why in launch.different.items()}
    return replace(launch, words=tuple(words), env=env, different={}), reasons


def _numbered(text: str, number: str | None) -> str:
    return text if number is None else re.sub(rf"\d*({DIFFERENT}\d*)+", number, text)


def settle(
    keys: Node, launch: ScriptLaunch, numbers: Mapping[str, Unresolved]
) -> tuple[Node, list[str], list[Note]]:
    """Return a job without what need not be in it, lines of `setup:` in its place, and notes."""
    notes: list[Note] = []
    launcher = keys.get("launcher")
    is_one_node = keys.get("nodes") is None and keys.get("node_rank") is None
    if is_one_node and launcher is not None and launchers.load(launcher.text).STARTS_RANKS:
        for group in ("launcher_args", "env"):
            keys = _without_settings(keys, group, numbers, notes)
    env = keys.get("env")
    if env is None:
        return keys, [], notes
    in_words = {(w.line, w.name) for place, w in launch.different.items() if isinstance(place, int)}
    lines, variables = list[str](), list[tuple[Node, Node]]()
    for name, value in env.items:
        why = launch.different.get(name.text)
        source = why.source if any(number in value.text for number in numbers) and why else None
        is_shared = name.text in _SETTINGS and not is_one_node  # all nodes need the same
        if why is None or source is None or is_shared or (why.line, why.name) in in_words:
            variables.append((name, value))
            continue
        lines.append(f"export {name.text}={source}")
        notes.append(Note(why.line, f"`{name.text}` differs at each start", SETUP))
    return _with_items(keys, "env", variables), lines, notes


def may_settle(place: int | str, items: Sequence[object], why: Unresolved) -> bool:
    """Whether a value may be one that `settle` leaves out, as far as its place says."""
    if isinstance(place, str):
        return place in _SETTINGS or why.source is not None
    words = [str(items[place - 1]), str(why.content).partition("=")[0]]
    return any(re.sub("^--", "", word).replace("-", "_") in _SETTINGS for word in words)


def left(keys: Node, numbers: Mapping[str, Unresolved]) -> list[Unresolved]:
    """Return why values that a job has differ at each start."""
    texts = [*_texts(keys)]
    return [why for number, why in numbers.items() if any(number in text for text in texts)]


def _without_settings(
    keys: Node, group: str, numbers: Mapping[str, Unresolved], notes: list[Note]
) -> Node:
    """Return keys without the settings in a group that differ."""
    settings = keys.get(group)
    if settings is None:
        return keys
    options = [*_options(settings)]
    omitted = set[str]()
    for name, texts, _ in options:
        why = next((w for number, w in numbers.items() if any(number in t for t in texts)), None)
        if name in _SETTINGS and why is not None:
            omitted |= {name, *(_WITH_ENDPOINT if name == "rdzv_endpoint" else ())}
            notes.append(Note(why.line, f"`{name}` differs at each start", _OUTCOME))
    items = [item for name, _, items in options if name not in omitted for item in items]
    return _with_items(keys, group, items)


def _with_items(keys: Node, group: str, items: Sequence[Any]) -> Node:
    """Return keys with other items in a group, without it if there is none."""
    changed = [
        (key, replace(value, items=tuple(items)) if key.text == group else value)
        for key, value in keys.items
    ]
    return replace(keys, items=tuple((k, v) for k, v in changed if k.text != group or items))


def _options(settings: Node) -> Iterator[tuple[str, list[str], list[Any]]]:
    """Yield the name, texts and items of each variable, or of each option with its values."""
    if settings.kind == "map":
        yield from ((key.text, [value.text], [(key, value)]) for key, value in settings.items)
        return
    name, texts, items = "", list[str](), list[Node]()
    for word in settings.items:
        if word.text.startswith("--") and items:
            yield name, texts, items
            texts, items = [], []
        if word.text.startswith("--"):
            name = word.text[2:].partition("=")[0].replace("-", "_")
        texts.append(word.text)
        items.append(word)
    yield name, texts, items


def _texts(node: Node) -> Iterator[str]:
    yield node.text
    for item in node.items:
        for child in item if isinstance(item, tuple) else (item,):
            yield from _texts(child)
