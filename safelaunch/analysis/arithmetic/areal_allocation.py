"""Parses AReaL's allocation strings: how many GPUs generate, and how many train.

`sglang.d64p1m1+d32p2m1` (0.2), `sglang:d4p1t1+fsdp:d4` (0.3 and later), `d4p2m1`. A component is a
backend, then letters with counts: data, pipeline, tensor (`t`, before 0.3 `m`), context; `e`
(experts) shares the GPUs of the others. Sources: AReaL areal/api/alloc_mode.py (world_size),
realhf/experiments/common/common.py. The rest of the grammar (expert blocks in
parentheses, `|` for colocation, `actor_gen:...` lists) is not supported: the result is None.
"""

from __future__ import annotations

import re
from math import prod

_PART = r"(?:(?P<backend>[a-z]+)(?:\[[\w-]+\]|\([\w-]+\))?[.:])?(?P<sizes>(?:[dptmce]\d{1,6})+)"
_SERVERS = ("sglang", "vllm")


def parse_allocation(text: str) -> dict[str, int] | None:
    """Return GPUs by purpose: `generate`, `train`, and `generate_tensor`, `generate_pipeline`.

    None if the text is in none of the supported forms.
    """
    parts = [re.fullmatch(_PART, part) for part in text.strip().strip("\"'").split("+")]
    gpus = {"generate": 0, "train": 0, "generate_tensor": 1, "generate_pipeline": 1}
    purposes = set()
    for part in parts:
        sizes = None if part is None else _sizes(part["sizes"])
        if part is None or sizes is None:
            return None
        purpose = "generate" if part["backend"] in _SERVERS else "train"
        if purpose in purposes:
            return None
        purposes.add(purpose)
        gpus[purpose] = prod(size for letter, size in sizes.items() if letter != "e")
        if purpose == "generate":
            gpus["generate_tensor"] = sizes.get("t", sizes.get("m", 1))
            gpus["generate_pipeline"] = sizes.get("p", 1)
    return gpus


def _sizes(text: str) -> dict[str, int] | None:
    """Return {letter: count}; None if a letter is repeated or a count is 0."""
    pairs = re.findall(r"([a-z])(\d+)", text)
    sizes = {letter: int(size) for letter, size in pairs}
    return sizes if len(sizes) == len(pairs) and all(sizes.values()) else None
