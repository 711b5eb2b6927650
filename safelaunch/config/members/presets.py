"""Servers that are often beside a job: how each is started, and when it is ready.

Each row has a source, read on 2026-11-28: where the project says which path answers once the model
is loaded. `--port` is the option of all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from safelaunch.config.yaml_io.node import Node, mapping, overlay, scalar
from safelaunch.errors import ConfigError
from safelaunch.model import Origin

if TYPE_CHECKING:
    from collections.abc import Mapping


class Preset(NamedTuple):
    """The keys of a service that a preset stands for; `http` None: ready with its open port."""

    launcher: str
    module: str
    command: str
    http: str | None
    source: str
    host_option: str = ""  # by which it is made to listen for other machines, unless it does


PRESETS: Mapping[str, Preset] = {
    "vllm": Preset(
        "python",
        "vllm.entrypoints.openai.api_server",
        "",
        "/health",
        "https://docs.vllm.ai/en/latest/cli/serve/",
    ),
    "sglang": Preset(
        "python",
        "sglang.launch_server",
        "",
        "/health",
        "https://docs.sglang.io/basic_usage/native_api.html",
        "host",
    ),
    "trl-vllm": Preset(
        "python",
        "trl.scripts.vllm_serve",
        "",
        "/health/",
        "https://github.com/huggingface/trl/blob/main/trl/scripts/vllm_serve.py",
    ),
    "swift-rollout": Preset(
        "swift",
        "",
        "rollout",
        "/health/",
        "https://github.com/modelscope/ms-swift/blob/main/swift/pipelines/infer/rollout.py",
    ),
    "swift-deploy": Preset(
        "swift",
        "",
        "deploy",
        None,
        "https://github.com/modelscope/ms-swift/blob/main/swift/pipelines/infer/deploy.py",
    ),
}


def with_preset(name: str, keys: Node, preset: str, *, is_shared: bool) -> Node:
    """Return the keys of a service over those of its preset. Raises ConfigError.

    `is_shared`: other machines use it too.
    """
    row, origin = PRESETS[preset], Origin(f"preset {preset}")
    args = keys.get("args")
    if args is not None and args.kind != "map":
        raise ConfigError(
            f"preset `{preset}` adds `port` to `args`, which is no mapping",
            where=args.origin,
            hint="args: {model: NAME}; or leave the preset out",
        )
    own = {"launcher": scalar(row.launcher, origin)}
    if row.module:
        own["module"] = scalar(row.module, origin)
    if row.command:
        own["command"] = Node("list", origin, items=(scalar(row.command, origin),))
    args_of_preset = {"port": scalar(f"{{services.{name}.port}}", origin)}
    if is_shared and row.host_option:
        args_of_preset[row.host_option] = scalar("0.0.0.0", origin)  # noqa: S104 - asked for
    own["args"] = mapping(args_of_preset, origin)
    return overlay(mapping(own, origin), keys)
