"""The keys about how a run is watched, as one Supervision; what they demand of each other."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from safelaunch.config.schema.ending.read import read_ending
from safelaunch.config.schema.files import SmokeType
from safelaunch.config.schema.types import ArgsType
from safelaunch.config.yaml_io.node import Node, leaves, mapping, overlay
from safelaunch.errors import ConfigError
from safelaunch.model import BUILT_IN, Args, Hang, Recovery, Success, Supervision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.config.paths import Paths
    from safelaunch.model import Profile

MAX_NAME = 41  # characters of a job name: the limit of schema.files.NAME
_SMOKE = "-smoke"
_ABOUT_ARGS = ("resume_args", "fingerprint")  # keys of `recovery` that are not about restarts
# `${checkpoint}` is OmegaConf's
CHECKPOINT = re.compile(r"(?<!\$)\{checkpoint\}")
RESUME_EXAMPLE = (
    'recovery: {checkpoint: "out/checkpoint-*", '
    'resume_args: {resume_from_checkpoint: "{checkpoint}"}}'
)
_PLAIN = ("capture", "logs", "log_cap", "max_duration", "progress")


def read_supervision(
    values: Mapping[str, Any], tree: Node, paths: Paths, *, smoke: bool
) -> Supervision:
    """Return how the job's run is watched. Raises ConfigError."""
    for keys in (tree, tree.get("smoke")):
        if keys is not None and keys.kind == "map":
            _check_artifacts(keys, keys.get("workdir") or tree.get("workdir"), paths)
    hang: Hang | None = values.get("hang", Hang())
    recovery = _recovery(values.get("recovery"), tree)
    if hang is not None and hang.action == "restart" and recovery is None:
        raise ConfigError(
            "`action: restart` without `recovery`",
            where=block_value(tree, "hang", "action").origin,
            hint="`recovery: {}` allows 3 restarts",
        )
    return Supervision(
        success=Success(**values["success"]) if values.get("success") else None,
        hang=hang,
        recovery=recovery,
        smoke=smoke,
        max_cost=values.get("max_cost"),
        preemption=values.get("preemption"),
        ending=read_ending(values),
        **{key: values[key] for key in _PLAIN if key in values},
    )


def _recovery(values: Mapping[str, Any] | None, tree: Node) -> Recovery | None:
    if values is None:
        return None
    fields = {key: value for key, value in values.items() if key not in _ABOUT_ARGS}
    # a `backoff` above the default maximum raises that
    fields.setdefault("backoff_max", max(Recovery().backoff_max, values.get("backoff", 0)))
    recovery = Recovery(**fields)
    if recovery.backoff > recovery.backoff_max:
        where = block_value(tree, "recovery", "backoff_max").origin
        raise ConfigError("`backoff_max` is shorter than `backoff`", where=where)
    return recovery


def block_value(tree: Node, block: str, key: str) -> Node:
    """Return a value of a block, or the block if it does not set that key."""
    node = tree.get(block) or tree
    return node.get(key) or node


def _check_artifacts(keys: Node, workdir: Node | None, paths: Paths) -> None:
    """Refuse globs that lead out of the project: only its files count for `success`."""
    success = keys.get("success")
    globs = success.get("artifacts") if success is not None and success.kind == "map" else None
    if globs is None or globs.is_null:
        return
    if workdir is None or workdir.is_null:
        workdir = Node("scalar", BUILT_IN, text=".")
    base = paths.real(workdir.text, workdir.origin)
    for item in globs.items if globs.kind == "list" else (globs,):
        if ".." not in item.text.split("/"):
            continue
        if re.search(r"[*?\[].*/\.\.(/|$)", item.text):
            raise ConfigError(f"`{item.text}`: `..` after a wildcard", where=item.origin)
        target = os.path.normpath(os.path.join(base, item.text))
        if not any(target.startswith(folder.rstrip("/") + "/") for folder in (base, paths.root)):
            raise ConfigError(
                f"`{item.text}` leads out of the project",
                where=item.origin,
                hint=f"the project is {paths.root}",
            )


def check_ladder(recovery: Recovery | None, profile: Profile | None, tree: Node) -> None:
    """Refuse `ladder: true` where the profile has no ladder."""
    if recovery is None or not recovery.ladder or (profile is not None and profile.ladder):
        return
    reason = f"profile `{profile.name}` has none" if profile else "the job has no profile"
    where = block_value(tree, "recovery", "ladder").origin
    raise ConfigError(f"`ladder: true` needs a profile with a ladder; {reason}", where=where)


def resumed_args(tree: Node) -> Args | None:
    """Return `args` with `recovery.resume_args` merged over them; None without `resume_args`.

    A mapping merges key by key, and null removes an argument; a list is appended.
    """
    recovery = tree.get("recovery")
    added = recovery.get("resume_args") if recovery is not None else None
    if recovery is None or added is None or added.is_null:
        return None
    args = tree.get("args")
    _check_checkpoint(recovery, added, args)
    if args is None or args.is_null or not args.items:
        return ArgsType().read(added)
    if args.kind != added.kind:
        kinds = {"map": "mapping", "list": "list"}
        raise ConfigError(
            f"`resume_args` are a {kinds[added.kind]}, `args` a {kinds[args.kind]}",
            where=added.origin,
            hint="write both in the same form",
        )
    if args.kind == "list":
        return ArgsType().read(Node("list", added.origin, items=(*args.items, *added.items)))
    return ArgsType().read(overlay(args, added))


def smoke_args(tree: Node) -> Args | None:
    """Return `args` with `smoke.args` merged over them; None without `smoke.args`."""
    args, smoke = tree.get("args"), tree.get("smoke")
    added = smoke.get("args") if smoke is not None and smoke.kind == "map" else None
    if added is None or added.is_null:
        return None
    is_merged = args is not None and args.kind == added.kind == "map"
    return ArgsType().read(overlay(args, added) if args is not None and is_merged else added)


def _check_checkpoint(recovery: Node, added: Node, args: Node | None) -> None:
    """Refuse a `{checkpoint}` in `resume_args` that nothing can replace."""
    nodes = [node for node in leaves(added) if CHECKPOINT.search(node.text)]
    if not nodes:
        return
    glob = recovery.get("checkpoint")
    if glob is None or glob.is_null:
        raise ConfigError(
            "`{checkpoint}` in `resume_args` without `recovery.checkpoint`",
            where=nodes[0].origin,
            hint="name the checkpoints by a glob: `checkpoint: out/checkpoint-*`",
        )
    for node in leaves(args) if args is not None else ():
        if CHECKPOINT.search(node.text):
            raise ConfigError(
                "`{checkpoint}` in `args`: it is replaced in `recovery.resume_args` only",
                where=node.origin,
                hint="write it there; the first attempt has no checkpoint",
            )


def apply_smoke(tree: Node, default_name: str) -> Node:
    """Return the job with its `smoke:` block merged over it. Raises ConfigError without one.

    Unless the block gives a name, `-smoke` is appended to the job's own to tell the run apart.
    """
    smoke = tree.get("smoke")
    if smoke is None or smoke.is_null:
        raise ConfigError(
            "`--smoke` needs a `smoke:` block in the job",
            where=tree.origin if tree.origin.line else None,
            hint="for example `smoke: {args: {max_steps: 5}, success: {min_steps: 2}}`",
        )
    if smoke.kind != "map":
        return tree  # JOB.read refuses it
    SmokeType().read(smoke)
    job = {key.text: value for key, value in tree.items if key.text != "smoke"}
    name = job.pop("name", None)
    if name is None or name.is_null:
        name = Node("scalar", smoke.origin, text=default_name)
    if name.kind == "scalar":
        short = name.text[: MAX_NAME - len(_SMOKE)].rstrip("-_")
        name = Node("scalar", name.origin, text=short + _SMOKE)
    success = job.get("success")
    if success is not None and success.kind == "map":
        # a few steps do not leave the files of a whole run
        items = tuple(item for item in success.items if item[0].text != "artifacts")
        job["success"] = Node("map", success.origin, items=items)
    return overlay(mapping({**job, "name": name}, tree.origin), smoke)
