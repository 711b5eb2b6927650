"""The keys that say how a run is watched, to one Supervision; what they demand of each other."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from safelaunch.config.schema.files import SmokeType
from safelaunch.config.schema.types import ArgsType
from safelaunch.config.yaml_io.node import Node, overlay
from safelaunch.errors import ConfigError
from safelaunch.model import BUILT_IN, Args, Hang, Recovery, Success, Supervision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.config.paths import Paths
    from safelaunch.model import Profile

MAX_NAME = 41  # characters of a job's name, see schema.NAME
_OF_ARGS = ("resume_args", "fingerprint")  # about `args`, not about restarts
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
            where=part_of(tree, "hang", "action").origin,
            hint="`recovery: {}` allows 3 restarts",
        )
    success = values.get("success")
    return Supervision(
        success=Success(**success) if success else None,
        hang=hang,
        recovery=recovery,
        smoke=smoke,
        **{key: values[key] for key in _PLAIN if key in values},
    )


def _recovery(given: Mapping[str, Any] | None, tree: Node) -> Recovery | None:
    if given is None:
        return None
    own = {key: value for key, value in given.items() if key not in _OF_ARGS}
    if "backoff_max" not in own:  # a pause longer than the default's longest is meant
        own["backoff_max"] = max(Recovery().backoff_max, own.get("backoff", 0))
    known = Recovery(**own)
    if known.backoff > known.backoff_max:
        raise ConfigError(
            "`backoff_max` is shorter than `backoff`",
            where=part_of(tree, "recovery", "backoff_max").origin,
        )
    return known


def part_of(tree: Node, block: str, key: str) -> Node:
    """Return a value of a block, or the block where it does not say that key."""
    node = tree.get(block) or tree
    return node.get(key) or node


def _check_artifacts(keys: Node, workdir: Node | None, paths: Paths) -> None:
    """Refuse globs that lead out of the project: its files alone say how a run went."""
    success = keys.get("success")
    globs = success.get("artifacts") if success is not None and success.kind == "map" else None
    if globs is None or globs.is_null:
        return
    text, origin = (
        (".", BUILT_IN) if workdir is None or workdir.is_null else (workdir.text, workdir.origin)
    )
    base = paths.real(text, origin)
    for item in globs.items if globs.kind == "list" else (globs,):
        if ".." in item.text.split("/"):
            _check_inside(item, base, paths)


def _check_inside(item: Node, base: str, paths: Paths) -> None:
    if re.search(r"[*?\[].*/\.\.(/|$)", item.text):
        raise ConfigError(f"`{item.text}`: `..` behind a wildcard", where=item.origin)
    meant = os.path.normpath(os.path.join(base, item.text))
    if not any(meant.startswith(folder.rstrip("/") + "/") for folder in (base, paths.root)):
        raise ConfigError(
            f"`{item.text}` leads out of the project",
            where=item.origin,
            hint=f"the project is {paths.root}",
        )


def check_ladder(recovery: Recovery | None, profile: Profile | None, tree: Node) -> None:
    """Refuse `ladder: true` where there is no ladder to climb."""
    if recovery is None or not recovery.ladder or (profile is not None and profile.ladder):
        return
    whose = f"profile `{profile.name}` has none" if profile else "the job has no profile"
    where = part_of(tree, "recovery", "ladder").origin
    raise ConfigError(f"`ladder: true` needs a profile with a ladder; {whose}", where=where)


def resumed_args(tree: Node) -> Args | None:
    """Return `args` with `recovery.resume_args` laid over them; None where there are none.

    A mapping merges key by key, and null takes an argument away; a list is put behind.
    """
    recovery = tree.get("recovery")
    added = recovery.get("resume_args") if recovery is not None else None
    if added is None or added.is_null:
        return None
    args = tree.get("args")
    if args is None or args.is_null or not args.items:
        return ArgsType().read(added)
    if args.kind != added.kind:
        raise ConfigError(
            f"`resume_args` are a {_KINDS[added.kind]}, `args` a {_KINDS[args.kind]}",
            where=added.origin,
            hint="write both in the same form",
        )
    if args.kind == "list":
        both = Node("list", added.origin, items=(*args.items, *added.items))
        return ArgsType().read(both)
    return ArgsType().read(overlay(args, added))


_KINDS = {"map": "mapping", "list": "list"}


def lay_smoke(tree: Node, default_name: str) -> Node:
    """Return the job with its `smoke:` block laid over it. Raises ConfigError without one.

    Unless the block gives a name, `-smoke` behind the job's own tells the run apart.
    """
    smoke = tree.get("smoke")
    if smoke is None or smoke.is_null:
        raise ConfigError(
            "`--smoke` needs a `smoke:` block in the job",
            where=tree.origin if tree.origin.line else None,
            hint="for example `smoke: {args: {max_steps: 5}, success: {min_steps: 2}}`",
        )
    if smoke.kind != "map":
        return tree  # its type says what is wrong with it
    SmokeType().read(smoke)
    kept = tuple(
        (key, _without_artifacts(value) if key.text == "success" else value)
        for key, value in tree.items
        if key.text not in ("smoke", "name")
    )
    name = tree.get("name")
    if name is None or name.is_null:
        name = Node("scalar", smoke.origin, text=default_name)
    if name.kind == "scalar":
        short = name.text[: MAX_NAME - len(_SMOKE)].rstrip("-_")
        name = Node("scalar", name.origin, text=short + _SMOKE)
    kept += ((Node("scalar", name.origin, text="name"), name),)
    return overlay(Node("map", tree.origin, items=kept), smoke)


def _without_artifacts(success: Node) -> Node:
    """Return `success` without the files that a whole run leaves behind: a few steps do not."""
    if success.kind != "map":
        return success
    kept = tuple((key, value) for key, value in success.items if key.text != "artifacts")
    return Node("map", success.origin, items=kept)


_SMOKE = "-smoke"
