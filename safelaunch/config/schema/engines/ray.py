"""The `ray:` block of a job or of a host."""

from __future__ import annotations

from safelaunch.config.schema.engines.block_type import BlockType
from safelaunch.config.schema.engines.pairs import AMOUNT, Pairs
from safelaunch.config.schema.keys import Key, Schema
from safelaunch.config.schema.types import Choice, Count, Text
from safelaunch.config.schema.units import Duration
from safelaunch.model import Ray

# docs.ray.io, "Placement Groups": STRICT_PACK would put all nodes of a job onto one machine
STRATEGIES = ("STRICT_SPREAD", "SPREAD", "PACK")
_ADDRESS = Text(
    "an address",
    r"https?://[A-Za-z0-9._\[\]:-]+(/[A-Za-z0-9._~/-]*)?",
    "is no address of a jobs interface such as http://10.0.0.5:8265",
)
_VARIABLE = Text("a variable", r"[A-Za-z_][A-Za-z0-9_]*", "is no name of a variable")
RAY = Schema(
    "ray",
    (
        Key("address", _ADDRESS, "its jobs interface; default: http://127.0.0.1:8265"),
        Key("placement", Choice(STRATEGIES), "how nodes are chosen; STRICT_SPREAD: all differ"),
        Key("gpus_per_node", Count(), "GPUs of a node, for jobs that take all or do not say"),
        Key("cpus", Count(), "cores of each node"),
        Key(
            "resources",
            Pairs(r"[A-Za-z0-9][A-Za-z0-9_.:/-]*", "is no resource of Ray", AMOUNT, "h100: 1"),
            "further resources of each node, such as {h100: 1}",
        ),
        Key("placement_timeout", Duration(), "fail if there is no place for so long; default 30s"),
        Key("token_from", _VARIABLE, "the variable that has its token"),
    ),
)


RAY_TYPE = BlockType(RAY, Ray, "a mapping such as {address: 'http://10.0.0.5:8265', cpus: 16}")
