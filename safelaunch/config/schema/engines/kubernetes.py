"""The `kubernetes:` block of a job or of a host."""
# ruff: noqa: D102 - types.Type describes `read` and `schema`

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from safelaunch.config.schema import json_types
from safelaunch.config.schema.engines.block_type import BlockType
from safelaunch.config.schema.engines.pairs import AMOUNT, Pairs
from safelaunch.config.schema.keys import Block, Key, Schema
from safelaunch.config.schema.text_checks import check_kind, shorten, wrong
from safelaunch.config.schema.types import Choice, Count, ListOf, Text
from safelaunch.config.schema.units import Bool, Size
from safelaunch.errors import ConfigError
from safelaunch.model import Kubernetes, Toleration, Volume

if TYPE_CHECKING:
    from safelaunch.config.schema.json_types import Shape
    from safelaunch.config.yaml_io.node import Node

# kubernetes.io/docs/concepts/overview/working-with-objects: names, and labels. A name in a label,
# or of a namespace, has at most 63 characters; that of another object may have parts with dots
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_SUBDOMAIN = r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PREFIX = r"(?=.{1,317}$)[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/"
_KEY = f"({_PREFIX})?{_WORD}"
_NAME_RULE = "is no name for Kubernetes: small letters, digits and `-`"
_NAME = Text("a name", _SUBDOMAIN, f"{_NAME_RULE}, also parts with dots")
_SHORT_NAME = Text("a name", _LABEL, f"{_NAME_RULE}, at most 63")
_LABEL_VALUE = Text(
    "text", f"({_WORD})?", "is no value of a label: letters, digits, `-`, `_`, `.`, at most 63"
)
_KEY_RULE = "is no key such as `example.com/name`"
_RESOURCE_RULE = "is no resource of a device such as nvidia.com/gpu"
_IMAGE = Text("an image", r"[A-Za-z0-9][A-Za-z0-9._:/@-]*", "is no image such as example.com/a:1")
_FOLDER = Text(
    "an absolute path", r"/[^\n]*", "is no absolute path; it is one inside of the container"
)
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TOLERATION = re.compile(
    rf"(?P<key>{_KEY})(?:=(?P<value>({_WORD})?))?(?::(?P<effect>{'|'.join(_EFFECTS)}))?"
)


class Tolerations(ListOf):
    """Taints as `kubectl taint` writes them: `KEY`, `KEY=VALUE`, `KEY=VALUE:EFFECT`."""

    def __init__(self) -> None:
        rule = f"is no taint such as key, key=value, or with `:{'`, `:'.join(_EFFECTS)}`"
        super().__init__(Text("a taint", _TOLERATION.pattern, rule), "taints", single=True)

    def read(self, node: Node) -> tuple[Toleration, ...]:
        matches = (_TOLERATION.fullmatch(text) for text in super().read(node))
        return tuple(Toleration(m["key"], m["value"], m["effect"]) for m in matches if m)

    def schema(self) -> Shape:
        # a name of a group is Python's alone
        text = json_types.text(re.sub(r"\?P<\w+>", "", _TOLERATION.pattern), "expected a taint")
        return json_types.either(json_types.listed(text), text)


_CLAIM = Schema(
    "volume",
    (
        Key("claim", _NAME, "the name of a PersistentVolumeClaim"),
        Key("read_only", Bool(), "mount it to be read only"),
        Key("sub_path", Text("a path", r"[^/\n][^\n]*", "is no relative path"), "a folder of it"),
    ),
)


class Volumes:
    """Claims by the path at which the containers see them: `{/data: my-claim}`."""

    wants = "a mapping of paths to claims, such as {/data: my-claim}"
    value = Block(_CLAIM, "a claim such as `data`, or {claim: data, read_only: true}")

    def read(self, node: Node) -> tuple[Volume, ...]:
        check_kind(node, "map", self.wants)
        return tuple(self._volume(key, value) for key, value in node.items if not value.is_null)

    def _volume(self, key: Node, node: Node) -> Volume:
        path = _FOLDER.read(key)
        if ":" in path:  # validation of Kubernetes: must not contain ':'
            raise ConfigError("a colon in the path of a volume", where=key.origin)
        if node.kind == "scalar":
            return Volume(path, _NAME.read(node))
        values = self.value.read(node)
        if "claim" not in values:
            raise ConfigError(
                f"no `claim` for {shorten(path)}", where=node.origin, hint=f"{path}: my-claim"
            )
        if ".." in values.get("sub_path", "").split("/"):
            raise wrong(node.get("sub_path") or node, "a path below the volume")
        return Volume(path, **values)

    def schema(self) -> Shape:
        value = json_types.either(_NAME.schema(), self.value.schema())
        return json_types.mapped(json_types.nullable(value), {"pattern": "^/[^\n:]*$"})


_MEMORY = Size(1 << 20)
_RESOURCE = f"{_PREFIX}{_WORD}"
KUBERNETES = Schema(
    "kubernetes",
    (
        Key("kind", Choice(("job", "trainjob")), "an Indexed Job, or a TrainJob of Kubeflow"),
        Key("namespace", _SHORT_NAME, "where the job and its pods are"),
        Key("image", _IMAGE, "the image of the containers"),
        Key("workdir", _FOLDER, "the project's folder in the image or on a volume"),
        Key("gpus_per_node", Count(), "GPUs of a node, for jobs that take all or do not say"),
        Key("gpu_resource", Text("a resource", _RESOURCE, _RESOURCE_RULE), "as GPUs are counted"),
        Key("cpu", Count(), "cores of each node"),
        Key("memory", _MEMORY, "memory of each node"),
        Key("shm", _MEMORY, "most that /dev/shm may hold; default: as much as the memory"),
        Key(
            "resources",
            Pairs(_RESOURCE, _RESOURCE_RULE, AMOUNT, "rdma/hca: 1"),
            "further devices of each node, such as {rdma/hca: 1}",
        ),
        Key("volumes", Volumes(), "claims by their path in the container: {/data: my-claim}"),
        Key("secret_name", _NAME, "the Secret that has the values of `env_from`"),
        Key("pull_secret_name", _NAME, "the Secret for a registry that is not public"),
        Key("service_account", _NAME, "the account of the pods"),
        Key("queue", _SHORT_NAME, "a LocalQueue of Kueue"),
        Key("priority_class", _NAME, "the PriorityClass of the pods"),
        Key(
            "node_selector",
            Pairs(_KEY, _KEY_RULE, _LABEL_VALUE, "pool: h100"),
            "labels that the nodes must have",
        ),
        Key("tolerations", Tolerations(), "taints of nodes that do not keep the job away"),
        Key("labels", Pairs(_KEY, _KEY_RULE, _LABEL_VALUE, "team: nlp"), "labels of job and pods"),
        Key(
            "annotations",
            Pairs(_KEY, _KEY_RULE, Text(), "example.com/network: rdma"),
            "annotations of the pods",
        ),
        Key("retries", Count(0), "so many times a failed pod is started again; one node only"),
        Key("runtime", _NAME, "the ClusterTrainingRuntime of a TrainJob"),
    ),
)


KUBERNETES_TYPE = BlockType(
    KUBERNETES, Kubernetes, "a mapping such as {image: example.com/train:1, workdir: /workspace}"
)
