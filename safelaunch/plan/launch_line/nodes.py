"""The values of a launch line as nodes of a job's tree."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.config.yaml_io.node import Node, scalar
from safelaunch.launchers.flag_table import PASTED_LINE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from safelaunch.model import Origin

AUTO = "auto"


def word(text: str, origin: Origin = PASTED_LINE) -> Node:
    """Return a word: a number is a plain scalar, as in a file, all else is text, `null` too."""
    return Node("scalar", origin, text=text, plain=bool(re.fullmatch(r"[0-9]+", text)))


def words(texts: Sequence[str], origin: Origin = PASTED_LINE) -> Node:
    """Return a list of words."""
    return Node("list", origin, items=tuple(word(text, origin) for text in texts))


def value(text: str | None) -> Node:
    """Return the value of a variable; null removes it."""
    return scalar("null", PASTED_LINE) if text is None else word(text)


def gpus(text: str, origin: Origin = PASTED_LINE) -> Node:
    """Return the GPUs of a flag: `0,1`, `all`."""
    if text in ("all", AUTO):
        return scalar(AUTO, origin)
    # `0,` is one GPU for CUDA, and a single one is often typed so
    return words([part.strip() for part in text.strip().removesuffix(",").split(",")], origin)


def args(texts: Sequence[str]) -> dict[str, Node]:
    """Return the key `args`, if there are any."""
    return {"args": words(texts)} if texts else {}
