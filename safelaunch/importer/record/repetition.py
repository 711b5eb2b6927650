"""What differs between two recordings of a script: what it draws at each start.

The port at which ranks of one node meet is left to safelaunch, as where the script is read. Other
values stay as they were recorded, and are named: an output folder is the same at a restart then.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.importer import differing
from safelaunch.importer.findings import DIFFERENT, Unresolved
from safelaunch.importer.jobs import is_settled
from safelaunch.secrets_in_text import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.importer.findings import Findings, ScriptLaunch

# what a script draws from, or looks at, that is another thing at each start
_DRAWS = re.compile(
    r"\b(S?RANDOM|SECONDS|EPOCH\w+|BASHPID|shuf|jot|date|uuidgen|mktemp|od|ss|netstat|lsof|nc|rand)\b"
    r"|\$\$|random|socket|port|%\([^)]*\)T",
)
_LONGEST = 60  # characters of a value in a note
_OUTCOME = "kept as it is in this recording"
# In a recording that is repeated: another time, but for a script that says which one it means.
LATER_DATE = """#!{bash} -p
PATH=/usr/bin:/bin
date -d '400 days 1 hour 1 minute 1 second' "$@" 2>/dev/null || exec date "$@"
"""


def may_differ(texts: Sequence[str]) -> bool:
    """Whether scripts have anything in them that may be different at each start."""
    return any(map(_DRAWS.search, texts))


def mark_differing(findings: Findings, other: Findings, environ: Mapping[str, str]) -> None:
    """Mark the ports of launches that another recording has otherwise, and note other values."""
    launches, others = findings.launches, other.launches
    if [_shape(launch) for launch in launches] != [_shape(launch) for launch in others]:
        findings.note(1, "what it starts differs at each start", _OUTCOME)
        return
    for at, (launch, repeated) in enumerate(zip(launches, others, strict=True)):
        different = _differences(launch, repeated)
        ports = _ports(launch, different)
        marked = _marked(launch, ports)
        if ports and is_settled(marked, environ):
            findings.launches[at] = marked
        else:
            ports = {}
        for place in different.keys() - ports.keys():
            findings.note(launch.line, f"{_shown(launch, place)} differs at each start", _OUTCOME)


def _shape(launch: ScriptLaunch) -> tuple[object, ...]:
    set_names = {name: value is None for name, value in launch.env.items()}
    return launch.line, len(launch.words), os.path.basename(launch.words[0]), set_names


def _differences(launch: ScriptLaunch, other: ScriptLaunch) -> dict[int | str, Unresolved]:
    """Return why each word or variable differs, with a mark in it for the part that does."""
    texts, others = _texts(launch), _texts(other)
    return {
        place: Unresolved(
            "a value that differs at each start", launch.line,
            differs=True, content=_with_mark(text, others[place]),
        )
        for place, text in texts.items()
        if text != others[place]
    }  # fmt: skip


def _texts(launch: ScriptLaunch) -> dict[int | str, str]:
    texts: dict[int | str, str] = dict(enumerate(launch.words))
    texts |= {name: value for name, value in launch.env.items() if value is not None}
    return texts


def _with_mark(text: str, other: str) -> str:
    """Return a text with a mark in place of what another one has otherwise, whole numbers of it."""
    start = _common(text, other)
    rest, rest_of_other = text[start:], other[start:]
    end = _common(rest[::-1], rest_of_other[::-1])
    before = re.sub(r"\d+$", "", text[:start])
    after = re.sub(r"^\d+", "", rest[len(rest) - end :])
    return f"{before}{DIFFERENT}{after}"


def _common(text: str, other: str) -> int:
    """Return how many characters two texts have in common from their beginning."""
    pairs = zip(text, other, strict=False)
    return next((n for n, (x, y) in enumerate(pairs) if x != y), min(len(text), len(other)))


def _ports(
    launch: ScriptLaunch, different: Mapping[int | str, Unresolved]
) -> dict[int | str, Unresolved]:
    """Return the differences that may be ports, but for values that stand elsewhere too."""
    texts = _texts(launch)
    ports = {
        place: why
        for place, why in different.items()
        if differing.may_settle(place, launch.words, why)
    }
    elsewhere = [text for place, text in texts.items() if place not in ports]
    return {
        place: why
        for place, why in ports.items()
        if not any(_drawn(texts[place], why) in text for text in elsewhere)
    }


def _drawn(text: str, why: Unresolved) -> str:
    before, _, after = str(why.content).partition(DIFFERENT)
    return text[len(before) : len(text) - len(after)]


def _marked(launch: ScriptLaunch, ports: Mapping[int | str, Unresolved]) -> ScriptLaunch:
    words = [str(ports[at].content) if at in ports else w for at, w in enumerate(launch.words)]
    env = {n: str(ports[n].content) if n in ports else v for n, v in launch.env.items()}
    return replace(launch, words=tuple(words), env=env, different=ports)


def _shown(launch: ScriptLaunch, place: int | str) -> str:
    if isinstance(place, str):
        return f"`{place}`" if is_secret_name(place) else f"`{place}={launch.env[place]}`"
    word, before = launch.words[place], launch.words[place - 1]
    text = f"{before} {word}" if re.match(r"--?[A-Za-z][\w-]*$", before) else word
    return f"`{text if len(text) <= _LONGEST else f'{text[:_LONGEST]}...'}`"
