"""The keys of a service beside those of a job: when it is ready, what it needs, its port."""

from __future__ import annotations

from safelaunch.config.schema.host_types import HOST_NAME, Port
from safelaunch.config.schema.keys import Block, Key, Schema
from safelaunch.config.schema.types import Choice, Count, ListOf, MapOf, Text, WordsType
from safelaunch.config.schema.units import Duration, Pattern
from safelaunch.model import Ready

# config/members/presets.py says how each is started
SERVERS = ("vllm", "sglang", "trl-vllm", "swift-rollout", "swift-deploy")
SERVICE_NAME = Text(
    "a name", r"[a-z0-9][a-z0-9_-]{0,30}", "is no service name: small letters, digits, `-`, `_`"
)
READY = Schema(
    "ready",
    (
        Key("http", Text("a path", r"/\S*", "is no path such as /health"), "a path that answers"),
        Key("status", Count(), "the status of that answer; default: 200"),
        Key("json", MapOf(Text(), "values"), "values in that answer: {model.loaded: true}"),
        Key("log", Pattern(), "a line of its log"),
        Key("command", WordsType(), "a command that ends with 0"),
        Key("limit", Duration(), "so long after its start at most; default: 10m"),
    ),
)
SERVICE = Schema(
    "service",
    (
        Key("preset", Choice(SERVERS), "a server that is known: its command, port and readiness"),
        Key("ready", Block(READY, "a mapping such as {http: /health}", Ready), "when it is ready"),
        Key("after", ListOf(SERVICE_NAME, "names", single=True), "services that it needs"),
        Key("port", Port(), "its port; default: a free one"),
        Key("host", HOST_NAME, "the host that it runs on; default: that of the first node"),
        Key("on_exit", Choice(("fail", "ignore")), "fail: the job fails where it ends; ignore"),
    ),
)
# keys of a job that a service has not: it belongs to the job's run, on the job's machine
NOT_OF_SERVICES = frozenset((
    *("extends", "smoke", "services", "name", "nodes", "node_rank", "hosts", "sync", "assets"),
    *("slurm", "kubernetes", "ray", "container", "needs", "inputs", "success", "log"),
    *("shards", "matrix", "part_gpus", "at_once", "queue"),
))  # fmt: skip
