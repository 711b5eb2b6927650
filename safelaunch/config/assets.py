"""Assets of a job: where each lies here, where the job finds it, and the words that say so.

On this machine an asset is used where it lies. A host has a place for it: `to`, or else one that
`safelaunch push` chooses too, so that what was pushed is not sent again.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING

from safelaunch.config.paths import ASSETS, host_path
from safelaunch.config.schema.sync import AssetsType
from safelaunch.config.schema.text_checks import shorten
from safelaunch.config.schema.types import PathText
from safelaunch.config.yaml_io.node import Node
from safelaunch.errors import ConfigError
from safelaunch.model import BUILT_IN, Placed, Word, join_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.config.paths import Paths
    from safelaunch.model import Asset

_FILLED = ("args", "launcher_args", "command", "env")  # and recovery.resume_args
_OWN = ("assets", "extends", "smoke", *_FILLED)
_REFERENCE = re.compile(r"(?<!\$)\{assets\.([^{}]*)\}")  # `${assets.x}` is OmegaConf's
_UNQUOTED = re.compile(r"assets\.[^{}]*")
_WINDOWS = re.compile(r"([A-Za-z]):[\\/]|\\\\")
_WSL = re.compile(r"/mnt/([a-z])(/.*)?")


def placed(tree: Node, paths: Paths, *, remote: bool) -> tuple[Placed, ...]:
    """Return where the assets of a job lie, on a host or here.

    Raises ConfigError; whether they are there is asked at the start.
    """
    node = tree.get("assets")
    if node is None or node.is_null:
        return ()
    assets = AssetsType().read(node)
    found = []
    for asset in assets:
        path = _here(asset, paths, remote=remote)
        place = _place(asset, path, tree, paths) if remote else paths.view(path)
        found.append(Placed(asset.name, path if remote else str(place), place, asset.origin))
    if remote:
        _check_apart(found)
    return tuple(found)


def _here(asset: Asset, paths: Paths, *, remote: bool) -> str:
    """Return the path on this machine: unlike other paths of a job, that is what it says."""
    said, shown = asset.path, shorten(asset.path)
    if os.sep == "\\":
        return paths.real(windows_path(said), asset.origin)
    drive = _WINDOWS.match(said)
    if drive is not None:
        there = f"/mnt/{drive[1].lower()}/{said[3:]}".replace("\\", "/") if drive[1] else None
        raise ConfigError(
            f"`{shown}` is a path of a Windows machine, and this is none",
            where=asset.origin,
            hint=f"under WSL it is `{there}`" if there else None,
        )
    if remote and "\\" in said:
        raise ConfigError(
            f"`{shown}` has a backslash",
            where=asset.origin,
            hint="write `{}`: that works on every machine".format(said.replace("\\", "/")),
        )
    return paths.real(said, asset.origin)


def windows_path(said: str) -> str:
    """Return a path for Windows: `/mnt/d/models` of a job written under WSL is `D:/models`."""
    drive = _WSL.fullmatch(said)
    return said if drive is None else f"{drive[1].upper()}:{drive[2] or '/'}"


def _place(asset: Asset, path: str, tree: Node, paths: Paths) -> Word:
    if asset.to is not None:
        below = posixpath.normpath(asset.to)
        return join_path(_workdir(tree, paths), "" if below == "." else below)
    name = os.path.basename(path)
    if not name:
        raise ConfigError(
            f"`{shorten(asset.path)}` has no name that its place on the host could have",
            where=asset.origin,
            hint="name a file or folder in it, or give `to:`",
        )
    return join_path(host_path(ASSETS), name)


def _workdir(tree: Node, paths: Paths) -> Word:
    node = tree.get("workdir")
    if node is None or node.is_null:
        return paths.planned(".", BUILT_IN)
    return paths.planned(PathText().read(node), node.origin)


def _check_apart(found: Sequence[Placed]) -> None:
    """Refuse two assets for one place, unless they are the same: a model and its tokenizer."""
    first: dict[Word, Placed] = {}
    for asset in found:
        other = first.setdefault(asset.place, asset)
        if other.path != asset.path:
            raise ConfigError(
                f"`{asset.name}` and `{other.name}` would have one place on the host: "
                f"{asset.place}",
                where=asset.origin,
                hint=f"give one a place of its own: `{asset.name}: {{path: ..., to: ...}}`",
            )


def patterns(assets: Sequence[Placed], paths: Paths) -> tuple[str, ...]:
    """Return what a sync of the project leaves out, as in a `.gitignore`: assets inside it."""
    inside = [a.path for a in assets if paths.is_inside(a.path) and a.path != paths.root]
    below = [os.path.relpath(path, paths.root).replace(os.sep, "/") for path in inside]
    return tuple("/" + re.sub(r"([*?\[\]\\]| (?= *$))", r"\\\1", path) for path in below)


def fill(tree: Node, assets: Sequence[Placed]) -> Node:
    """Return the keys of a job with the place of an asset wherever `{assets.NAME}` names it.

    Raises ConfigError for names that no asset has, and where a key cannot hold a place.
    """
    places = {asset.name: str(asset.place) for asset in assets}
    items = []
    for key, value in tree.items:
        filled = value
        if key.text in _FILLED:
            filled = _filled(value, places, is_top=True)
        elif key.text == "recovery" and value.kind == "map":
            filled = _in_recovery(value, places)
        elif key.text not in _OWN:
            _refuse(key.text, value, places)
        items.append((key, filled))
    return _like(tree, tuple(items))


def _in_recovery(block: Node, places: Mapping[str, str]) -> Node:
    items = []
    for key, value in block.items:
        is_words = key.text == "resume_args"
        items.append((key, _filled(value, places, is_top=True) if is_words else value))
        if not is_words:
            _refuse(f"recovery.{key.text}", value, places)
    return _like(block, tuple(items))


def _like(node: Node, items: tuple[object, ...]) -> Node:
    return Node(node.kind, node.origin, items=items, beats=node.beats)


def _filled(node: Node, places: Mapping[str, str], *, is_top: bool = False) -> Node:
    if node.kind == "map":
        if not is_top:
            _check_quotes(node)
        return _like(node, tuple((k, _filled(v, places)) for k, v in node.items))
    if node.kind == "list":
        return _like(node, tuple(_filled(item, places) for item in node.items))
    if "{assets." not in node.text:
        return node
    text = _REFERENCE.sub(lambda found: _known(found[1], node, places), node.text)
    return Node("scalar", node.origin, text=text, plain=node.plain, beats=node.beats)


def _known(name: str, node: Node, places: Mapping[str, str]) -> str:
    if name in places:
        return places[name]
    known = ", ".join(f"`{other}`" for other in places)
    raise ConfigError(
        f"`{{assets.{shorten(name)}}}`: no asset has that name",
        where=node.origin,
        hint=f"the assets of this job: {known}" if known else "this job has no asset left",
    )


def _check_quotes(node: Node) -> None:
    """Refuse `{assets.base}` without quotes, which is a mapping in YAML."""
    if len(node.items) != 1:
        return
    key, value = node.items[0]
    if value.is_null and not value.text and _UNQUOTED.fullmatch(key.text):
        raise ConfigError(
            f"`{{{shorten(key.text)}}}` without quotes is a mapping in YAML",
            where=node.origin,
            hint=f'write "{{{shorten(key.text)}}}"',
        )


def _refuse(key: str, node: Node, places: Mapping[str, str]) -> None:
    for leaf in _scalars(node):
        for name in _REFERENCE.findall(leaf.text):
            if name in places:
                raise ConfigError(
                    f"`{{assets.{name}}}` in `{key}` is not replaced",
                    where=leaf.origin,
                    hint="only in args, launcher_args, command, resume_args and env; for others "
                    f"give the asset a path there, `{name}: {{path: ..., to: ...}}`, and name that",
                )


def _scalars(node: Node) -> Iterator[Node]:
    if node.kind == "scalar":
        yield node
    for item in node.items:
        for child in item if isinstance(item, tuple) else (item,):
            yield from _scalars(child)
