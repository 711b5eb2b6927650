"""Plain YAML scalars by the thousand, and what PyYAML and ruamel.yaml really make of them."""

from __future__ import annotations

import datetime as dt
import math
import random
from typing import TYPE_CHECKING, Any

import yaml

from safelaunch.lint.yaml_files.scalars import (
    ScalarValue,
    pyyaml_value,
    ruamel_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EXAMPLES = (
    "1e-3", "3e-4", "1e3", "5e8", "1E-3", "1e-03", "-1e-3", "1.0e3", "1.5e3", "1.e3", "1.0e-3",
    "1.5e+3", "1.e-3", ".5e-3", "+1.0e-3", ".5e3", "-.5", "+.5", "0.5", "017", "08", "0o17",
    "029500", "0777", "0x1F", "0b11", "1_000", "1:30", "22:22", "190:20:30.15", "1:60", "on", "off",
    "yes", "no", "y", "n", "On", "OFF", "true", "True", "null", "~", "2026-05-20", "2026-13-45",
    "2026-5-20 1:00:00", "2026-05-20T10:00:00Z", "2026-05-20 25:00:00", "2026-05-20 10:00:00 +24",
    "=", "<<", "+.inf", "-.inf", ".nan", "1e400", "-0", "-0.0", "0_", "-_", "._", "1:30.", "0x_",
    "bf16", "auto", "1.2.3", "3.10", "12e5abc", "localhost:29500", "cuda:0", "1e", "e5", "--",
)  # fmt: skip
_PARTS = (
    "0", "1", "00", "07", "08", "9", "12", "_", "-", "+", ".", "e", "E", "e-", "e+", "e3", "0x",
    "0o", "0b", "f", ":", "22", "60", "2026", "-05-20", "T10:00:00", " 10:0:00", "Z", "+02:00",
    ".5", "1e5", "true", "yes", "on", "null", "~", ".inf", ".nan", "y", "=", "<<",
)  # fmt: skip


def generate(count: int, seed: int) -> list[str]:
    """Return different plain scalars: the known ones, and such as chance puts together."""
    chance = random.Random(seed)  # noqa: S311 - data for tests
    texts = dict.fromkeys(EXAMPLES)
    while len(texts) < count:
        text = "".join(chance.choice(_PARTS) for _ in range(chance.randint(1, 4)))
        if _is_plain(text):
            texts[text] = None
    return list(texts)


def _is_plain(text: str) -> bool:
    try:
        events = list(yaml.parse(f"v: {text}"))
    except yaml.YAMLError:
        return False
    scalars = [e for e in events if isinstance(e, yaml.ScalarEvent)]
    return len(scalars) == 2 and scalars[1].value == text and not scalars[1].style


def disagreements(scalars: list[str]) -> Iterator[str]:
    """Yield each scalar whose verdict, or either reading, is not what the loaders really say."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - not everybody who runs the tests has it

    for text in scalars:
        line = f"v: {text}"
        old = _reading(lambda: yaml.safe_load(line)["v"])  # noqa: B023 - called at once
        new = _reading(lambda: YAML(typ="safe", pure=True).load(line)["v"])  # noqa: B023 - as above
        if (pyyaml_value(text), ruamel_value(text)) != (old, new):
            yield f"{text!r}: PyYAML {old}, ruamel {new}"


def _reading(load: Callable[[], Any]) -> ScalarValue:
    try:
        value = load()
    except Exception:  # noqa: BLE001 - loaders raise ValueError, OverflowError and their own
        return ScalarValue("error")
    if isinstance(value, bool):
        return ScalarValue("boolean", str(value).lower())
    if isinstance(value, float):
        special = math.isinf(value) or math.isnan(value)
        spelled = ("-." if value < 0 else ".") + str(abs(value)) if special else repr(value)
        return ScalarValue("float", spelled)
    if isinstance(value, int):
        return ScalarValue("integer", str(value))
    if isinstance(value, dt.date):
        return ScalarValue("time" if isinstance(value, dt.datetime) else "date")
    return ScalarValue("null" if value is None else "text")
