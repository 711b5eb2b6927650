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
from safelaunch.importer.findings import DIFFERENT, Counted, Note, Unresolved
from safelaunch.importer.state import CALLER_VALUE
from safelaunch.launchers.flag_table import PASTED_LINE
from safelaunch.secrets_in_text import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.importer.findings import ScriptLaunch

_FIRST_NUMBER = 50_001
_VARIABLES = frozenset(("MASTER_PORT", "MASTER_ADDR"))
_OPTIONS = frozenset((
    "master_port", "main_process_port", "main_port", "master_addr", "main_process_ip",
    "main_address", "rdzv_endpoint", "rdzv_id",
))  # fmt: skip
_SETTINGS = _VARIABLES | _OPTIONS
_WITH_ENDPOINT = ("rdzv_backend", "rdzv_id")  # say how ranks meet at an endpoint
_BACKENDS = (None, "c10d", "static")  # need nothing but the endpoint
# options by which a launcher may start ranks on other machines
_OF_SEVERAL_NODES = frozenset((
    "num_nodes", "hostfile", "deepspeed_hostfile", "H", "include", "exclude", "launcher",
    "num_machines", "nnodes",
))  # fmt: skip
_COUNTS = frozenset(("nproc_per_node", "num_processes", "num_gpus"))
_COUNTING = frozenset(("torchrun", "accelerate", "deepspeed"))
_OUTCOME = "left to safelaunch, which takes a free port"
# change what bash reads, or are set by safelaunch behind `setup:`
_UNMADE = re.compile(
    r"IFS|ENV|BASH.*|SHELLOPTS|PS4|SAFELAUNCH_.*|PYTHONUNBUFFERED|VIRTUAL_ENV|CONDA_.*"
    r"|[A-Z_]+_VISIBLE_DEVICES"
)


class NumberedLaunch(NamedTuple):
    """A launch with a number in place of each value that differs, and why that one does.

    What extends a value of the caller, and secrets, are not in its environment: `setup` makes them.
    """

    launch: ScriptLaunch
    numbers: Mapping[str, Unresolved]
    setup: Sequence[SetupExport]
    notes: Sequence[Note]


class SetupExport(NamedTuple):
    """A line of `setup:` that makes a variable, and how many lines of the script are before it."""

    name: str
    text: str
    before: int


class SettledLaunch(NamedTuple):
    """A job without what differs: all lines of its `setup:`, and what is drawn in them.

    `left` says why other values of it differ.
    """

    keys: Node
    setup: Sequence[str]
    notes: Sequence[Note]
    draws: frozenset[int]
    left: Sequence[Unresolved]


def numbered(launch: ScriptLaunch) -> NumberedLaunch:
    """Return a launch whose words can be read as a line."""
    text = "\n".join((*launch.words, *(value or "" for value in launch.env.values())))
    unused = (str(n) for n in range(_FIRST_NUMBER, 65_536) if str(n) not in text)
    setup, notes = list[SetupExport](), list[Note]()
    numbers = dict[int | str, str]()
    env = dict(launch.env)
    for place, why in launch.different.items():
        value = launch.env.get(place) if isinstance(place, str) else None
        is_read = place in _SETTINGS or not (
            CALLER_VALUE in (value or "") or is_secret_name(str(place))
        )
        line = None if is_read else _setup_line(place, launch)
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


def _setup_line(place: int | str, launch: ScriptLaunch) -> SetupExport | None:
    """Return the shell line that exports a value, if it is drawn for that variable alone."""
    why = launch.different[place]
    source = why.source
    others = [other for at, other in launch.different.items() if at != place]
    is_shared = any(why.draws & other.draws for other in others)
    if isinstance(place, int) or source is None or is_shared or _UNMADE.fullmatch(place):
        return None
    before, count = launch.setup[: len(source.before)], len(source.before)
    if source.folder != launch.folder or before != source.before:  # or `cd` is among them
        return None
    return SetupExport(place, f"export {place}={source.text}", count)


def _with_number(text: str, number: str | None) -> str:
    return text if number is None else re.sub(rf"\d*({DIFFERENT}\d*)+", number, text)


def settle(keys: Node, item: NumberedLaunch) -> SettledLaunch:
    """Return a job without the rendezvous that differs, and with `setup:` for other variables."""
    lines, notes, omitted = [*item.setup], [*item.notes], set[str]()
    launcher, numbers, different = keys.get("launcher"), item.numbers, item.launch.different
    is_on_each_node = any(keys.get(key) is not None for key in ("nodes", "node_rank"))
    is_one_node = not is_on_each_node and not _may_reach_others(keys)
    if is_one_node and launcher is not None and launchers.load(launcher.text).STARTS_RANKS:
        for group in ("launcher_args", "env"):
            keys, names = _without_settings(keys, group, numbers, notes)
            omitted |= names
    if is_one_node:
        keys, names = _with_all_gpus(keys, item, notes)
        omitted |= names
    variables = list[tuple[Node, Node]]()
    env = keys.get("env")
    for name, value in env.items if env is not None else ():
        is_number = any(number in value.text for number in numbers)
        line = _setup_line(name.text, item.launch) if is_number else None
        if line is None or (name.text in _VARIABLES and is_on_each_node):
            variables.append((name, value))
            continue
        lines.append(line)
        why = different[name.text]
        notes.append(Note(why.line, f"`{name.text}`: {why.reason}", SETUP))
    keys = _with_items(keys, "env", variables)
    exports = {line.name for line in lines}
    texts = [*_texts(keys)]
    # a variable that was read as something else, and is in no key, is lost
    lost = {str(p) for p in different if p in item.launch.env} - exports - omitted
    left = [
        why
        for number, why in numbers.items()
        if any(number in text for text in texts) or any(different[name] is why for name in lost)
    ]
    draws = frozenset(draw for name in exports for draw in different[name].draws)
    return SettledLaunch(keys, _in_order(item.launch.setup, lines), notes, draws, left)


def _with_all_gpus(keys: Node, item: NumberedLaunch, notes: list[Note]) -> tuple[Node, set[str]]:
    """Return keys with `gpus: auto` for a process per GPU, and the variables that said it."""
    launcher, processes, env = (keys.get(key) for key in ("launcher", "processes", "env"))
    text = "" if processes is None else processes.text
    why = item.numbers.get(text)
    hidden = [] if env is None else [n for n, _ in env.items if "VISIBLE_DEVICES" in n.text]
    is_known = launcher is not None and launcher.text in _COUNTING
    if why is None or not _is_number_of_gpus(why) or not is_known or hidden or keys.get("gpus"):
        return keys, set()
    notes.append(Note(why.line, f"starts a process per GPU: {why.reason}", "`gpus: auto`"))
    auto = Node("scalar", PASTED_LINE, text="gpus"), Node("scalar", PASTED_LINE, text="auto")
    items = tuple(auto if key.text == "processes" else (key, value) for key, value in keys.items)
    names = {n for n, other in item.launch.different.items() if other is why}
    return replace(keys, items=items), {n for n in names if isinstance(n, str)}


def _is_number_of_gpus(why: Unresolved) -> bool:
    content = why.content if isinstance(why.content, str) else ""
    beside = re.search(rf"\d{DIFFERENT}|{DIFFERENT}\d", content)
    return why.counted is Counted.NUMBER and content.count(DIFFERENT) == 1 and beside is None


def shared(launches: Sequence[ScriptLaunch], settled: Sequence[SettledLaunch]) -> list[Unresolved]:
    """Return why values differ that several launches have, where `setup:` would draw them anew."""
    reasons = list[Unresolved]()
    for at, item in enumerate(settled):
        others = [other for number, other in enumerate(launches) if number != at]
        values = [why for other in others for why in other.different.values()]
        reasons += [why for why in values if why.draws & item.draws]
    return reasons


def _in_order(script: Sequence[str], lines: Sequence[SetupExport]) -> list[str]:
    """Return the lines of `setup:` in the order of the script."""
    ordered = list[str]()
    for at in range(len(script) + 1):
        exports = [line for line in lines if line.before == at]
        # `export PATH=... X=$(which a)` asks with the old PATH
        ordered += [line.text for line in sorted(exports, key=lambda line: line.name == "PATH")]
        ordered += script[at : at + 1]
    return ordered


def _may_reach_others(keys: Node) -> bool:
    """Whether a launcher has options that may let it start ranks on other machines."""
    settings = keys.get("launcher_args")
    options = [] if settings is None else _options(settings)
    return any(name in _OF_SEVERAL_NODES for name, _, _ in options)


def may_settle(place: int | str, items: Sequence[object], why: Unresolved) -> bool:
    """Whether a value may be one that `settle` leaves out, as far as its place says."""
    if isinstance(place, str):
        return place in _VARIABLES or why.source is not None
    words = [str(items[place - 1]), str(why.content).partition("=")[0]]
    options = {re.sub("^--", "", word).replace("-", "_") for word in words}
    return bool(options & _SETTINGS or (_is_number_of_gpus(why) and options & _COUNTS))


def _without_settings(
    keys: Node, group: str, numbers: Mapping[str, Unresolved], notes: list[Note]
) -> tuple[Node, set[str]]:
    """Return keys without the settings in a group that differ, and their names."""
    settings = keys.get(group)
    if settings is None:
        return keys, set()
    options = [*_options(settings)]
    omitted = set[str]()
    texts_of = {name: texts for name, texts, _ in options}
    backend = texts_of.get("rdzv_backend", [""])[-1].rpartition("=")[2] or None
    settled = _VARIABLES if group == "env" else _OPTIONS
    if backend not in _BACKENDS:
        settled -= {"rdzv_endpoint", "rdzv_id"}
    for name, texts, _ in options:
        why = next((w for number, w in numbers.items() if any(number in t for t in texts)), None)
        if name in settled and why is not None:
            omitted |= {name, *(_WITH_ENDPOINT if name == "rdzv_endpoint" else ())}
            notes.append(Note(why.line, f"`{name}` differs at each start", _OUTCOME))
    items = [item for name, _, items in options if name not in omitted for item in items]
    return _with_items(keys, group, items), omitted


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
        is_option = re.match(r"--?[A-Za-z]", word.text) is not None
        if is_option and items:
            yield name, texts, items
            texts, items = [], []
        if is_option:
            name = word.text.lstrip("-").partition("=")[0].replace("-", "_")
        texts.append(word.text)
        items.append(word)
    yield name, texts, items


def _texts(node: Node) -> Iterator[str]:
    yield node.text
    for item in node.items:
        for child in item if isinstance(item, tuple) else (item,):
            yield from _texts(child)
