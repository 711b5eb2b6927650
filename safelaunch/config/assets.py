"""Assets of a job: the path of each here and where the job runs, and `{assets.NAME}` in its keys.

On this machine an asset is used where it is. On a host its path is `to`, or else the one that
`safelaunch push` chooses too, so that what was pushed is not sent again.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING

from safelaunch.config.paths import ASSETS, host_path
from safelaunch.config.schema.members.words import REPLACED_KEYS, check_quotes
from safelaunch.config.schema.sync import AssetsType
from safelaunch.config.schema.text_checks import shorten
from safelaunch.config.schema.types import PathText
from safelaunch.config.yaml_io.node import Node
from safelaunch.errors import ConfigError
from safelaunch.model import BUILT_IN, Placed, Word, join_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.config.paths import Paths
    from safelaunch.model import Asset

_UNCHECKED = ("assets", "extends", "smoke")
_REFERENCE = re.compile(r"(?<!\$)\{assets\.([^{}]*)\}")  # `${assets.x}` is OmegaConf's
_WINDOWS = re.compile(r"([A-Za-z]):[\\/]|\\\\")
_WSL = re.compile(r"/mnt/([a-z])(/.*)?")


def place_assets(tree: Node, paths: Paths, *, remote: bool) -> tuple[Placed, ...]:
    """Return the assets of a job with their paths, on a host or here. Raises ConfigError.

    Whether they exist is checked at the start.
    """
    node = tree.get("assets")
    if node is None or node.is_null:
        return ()
    placed: list[Placed] = []
    places: dict[Word, Placed] = {}
    for asset in AssetsType().read(node):
        path = _local_path(asset, paths, remote=remote)
        if not remote:
            view = paths.view(path)
            placed.append(Placed(asset.name, str(view), view, asset.origin))
            continue
        entry = Placed(asset.name, path, _host_path(asset, path, tree, paths), asset.origin)
        placed.append(entry)
        other = places.setdefault(entry.place, entry)
        if other.path != path:  # a model and its tokenizer may be one folder
            raise ConfigError(
                f"`{asset.name}` and `{other.name}` would have one place on the host: "
                f"{entry.place}",
                where=asset.origin,
                hint=f"give one a place of its own: `{asset.name}: {{path: ..., to: ...}}`",
            )
    return tuple(placed)


def _local_path(asset: Asset, paths: Paths, *, remote: bool) -> str:
    path, shown = asset.path, shorten(asset.path)
    if os.sep == "\\":
        return paths.real(windows_path(path), asset.origin)
    drive = _WINDOWS.match(path)
    if drive is not None:
        wsl = f"/mnt/{drive[1].lower()}/{path[3:]}".replace("\\", "/") if drive[1] else None
        raise ConfigError(
            f"`{shown}` is a Windows path, and this is not a Windows machine",
            where=asset.origin,
            hint=f"under WSL it is `{wsl}`" if wsl else None,
        )
    if remote and "\\" in path:
        raise ConfigError(
            f"`{shown}` has a backslash",
            where=asset.origin,
            hint="write `{}`: that works on every machine".format(path.replace("\\", "/")),
        )
    return paths.real(path, asset.origin)


def windows_path(path: str) -> str:
    """Return a path for Windows: `/mnt/d/models` of a job written under WSL is `D:/models`."""
    drive = _WSL.fullmatch(path)
    return path if drive is None else f"{drive[1].upper()}:{drive[2] or '/'}"


def _host_path(asset: Asset, path: str, tree: Node, paths: Paths) -> Word:
    if asset.to is not None:
        node = tree.get("workdir")
        if node is None or node.is_null:
            node = Node("scalar", BUILT_IN, text=".")
        below = posixpath.normpath(asset.to)
        workdir = paths.planned(PathText().read(node), node.origin)
        return join_path(workdir, "" if below == "." else below)
    if not os.path.basename(path):
        raise ConfigError(
            f"`{shorten(asset.path)}` has no name to use on the host",
            where=asset.origin,
            hint="name a file or folder in it, or give `to:`",
        )
    return join_path(host_path(ASSETS), os.path.basename(path))


def ignore_patterns(assets: Sequence[Placed], paths: Paths) -> tuple[str, ...]:
    """Return patterns of a `.gitignore` for the assets inside the project: a sync skips them."""
    inside = [a.path for a in assets if paths.is_inside(a.path) and a.path != paths.root]
    below = [os.path.relpath(path, paths.root).replace(os.sep, "/") for path in inside]
    return tuple("/" + re.sub(r"([*?\[\]\\]| (?= *$))", r"\\\1", path) for path in below)


def substitute_assets(tree: Node, assets: Sequence[Placed]) -> Node:
    """Return the keys of a job with each `{assets.NAME}` replaced by the path of that asset.

    Raises ConfigError for unknown names, and for names in keys where they are not replaced.
    """
    return _substitute_keys(tree, {asset.name: str(asset.place) for asset in assets})


def _substitute_keys(tree: Node, places: Mapping[str, str], block: str = "") -> Node:
    items = []
    for key, value in tree.items:
        name, new = block + key.text, value
        if name in REPLACED_KEYS:
            new = _substitute(value, places, is_top=True)
        elif name == "recovery" and value.kind == "map":
            new = _substitute_keys(value, places, "recovery.")
        elif name not in _UNCHECKED:
            _refuse(name, value, places)
        items.append((key, new))
    return Node(tree.kind, tree.origin, items=tuple(items), beats=tree.beats)


def _substitute(node: Node, places: Mapping[str, str], *, is_top: bool = False) -> Node:
    items: tuple[object, ...] = ()
    text = node.text
    if node.kind == "map":
        if not is_top:
            check_quotes(node, "assets")
        items = tuple((key, _substitute(value, places)) for key, value in node.items)
    elif node.kind == "list":
        items = tuple(_substitute(item, places) for item in node.items)
    else:
        for name in _REFERENCE.findall(text):
            if name not in places:
                names = ", ".join(f"`{other}`" for other in places)
                raise ConfigError(
                    f"`{{assets.{shorten(name)}}}`: no asset has that name",
                    where=node.origin,
                    hint=f"the assets of this job: {names}" if names else "this job has no assets",
                )
        text = _REFERENCE.sub(lambda match: places[match[1]], text)
    return Node(node.kind, node.origin, text=text, plain=node.plain, items=items, beats=node.beats)


def _refuse(key: str, node: Node, places: Mapping[str, str]) -> None:
    for name in _REFERENCE.findall(node.text):
        if name in places:
            raise ConfigError(
                f"`{{assets.{name}}}` in `{key}` is not replaced",
                where=node.origin,
                hint="only in args, launcher_args, command, resume_args and env; for others "
                f"give the asset a path there, `{name}: {{path: ..., to: ...}}`, and name that",
            )
    for item in node.items:
        for child in item if isinstance(item, tuple) else (item,):
            _refuse(key, child, places)
