"""Values of a launch that differ at each start, such as a random port or the machine's name.

The ranks of one node meet at any free port of it, so safelaunch takes one in place of the script's.
On several nodes it must be the same port, which only the caller can say. What else a script exports
is made anew by its own text, in `setup:`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

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


class NumberedLaunch(NamedTuple):
    """A launch with a number in place of each value that differs, and why that one does.

    What `setup` makes is not in its environment.
    """

    launch: ScriptLaunch
    numbers: Mapping[str, Unresolved]
    setup: Sequence[str]
    notes: Sequence[Note]


def numbered(launch: ScriptLaunch) -> NumberedLaunch:
    """Return a launch whose words can be read as a line."""
    text = "\n".join((*launch.words, *(value or "" for value in launch.env.values())))
    unused = (str(n) for n in range(_FIRST_NUMBER, 65_536) if str(n) not in text)
    setup, notes = list[str](), list[Note]()
    numbers = dict[int | str, str]()
    env = dict(launch.env)
    for place, why in launch.different.items():
        line = None if place in _SETTINGS else _setup_line(place, why, launch)
        if line is None:
            numbers[place] = next(unused)
        else:
            del env[str(place)]
            setup.append(line)
            notes.append(Note(why.line, f"`{place}`: {why.reason}", SETUP))
    words = [_with_number(word, numbers.get(at)) for at, word in enumerate(launch.words)]
    texts = {n: v if v is None else _with_number(v, numbers.get(n)) for n, v in env.items()}
    reasons = {number: launch.different[place] for place, number in numbers.items()}
    return NumberedLaunch(replace(launch, words=tuple(words), env=texts), reasons, setup, notes)


def _setup_line(place: int | str, why: Unresolved, launch: ScriptLaunch) -> str | None:
    """Return the shell line that exports a value, if no word of the launch has it too."""
    in_words = {(w.line, w.name) for at, w in launch.different.items() if isinstance(at, int)}
    source = why.source
    if isinstance(place, int) or source is None or (why.line, why.name) in in_words:
        return None
    return f"export {place}={source.text}" if source.folder == launch.folder else None


def _with_number(text: str, number: str | None) -> str:
    return text if number is None else re.sub(rf"\d*({DIFFERENT}\d*)+", number, text)


def settle(keys: Node, item: NumberedLaunch) -> tuple[Node, list[str], list[Note]]:
    """Return a job without the rendezvous that differs, lines of `setup:` in its place, notes."""
    setup, notes = [*item.setup], [*item.notes]
    launcher, numbers = keys.get("launcher"), item.numbers
    if keys.get("nodes") is not None or keys.get("node_rank") is not None:  # all need the same
        return keys, setup, notes
    if launcher is not None and launchers.load(launcher.text).STARTS_RANKS:
        for group in ("launcher_args", "env"):
            keys = _without_settings(keys, group, numbers, notes)
    variables = list[tuple[Node, Node]]()
    env = keys.get("env")
    for name, value in env.items if env is not None else ():
        why = item.launch.different.get(name.text)
        line = None if why is None else _setup_line(name.text, why, item.launch)
        if why is None or line is None or not any(number in value.text for number in numbers):
            variables.append((name, value))
            continue
        setup.append(line)
        notes.append(Note(why.line, f"`{name.text}`: {why.reason}", SETUP))
    return _with_items(keys, "env", variables), setup, notes


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
