"""Whether two machines see one folder: a file that one leaves there, and the other finds."""

from __future__ import annotations

import atexit
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from safelaunch.runtime.agent.wire import Link

PREFIX = ".safelaunch-seen-"
_left: dict[str, str] = {}  # token -> file


def leave(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Leave a file for `token` in `folder`; `left` is false where that fails.

    The folder is made; with `make` false the nearest one above it that exists is taken instead.
    The file goes with this process at the latest: the client may be gone before it takes it.
    """
    del link
    folder, token = _folder(request), str(request["token"])
    path = _path(folder, token)
    try:
        os.makedirs(folder, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError:
        return {"left": False}
    _left[token] = path
    if len(_left) == 1:
        atexit.register(_take_all)
    return {"left": True}


def seen(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Return which of `tokens` are seen in `folder`."""
    del link
    folder = _folder(request)
    return {"seen": [t for t in request["tokens"] if os.path.exists(_path(folder, t))]}


def remove_marker(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Remove the file for `token`."""
    del link
    path = _left.pop(str(request["token"]), None)
    if path is not None:  # the folder itself may have been made since
        _remove(path)
    return {}


def _take_all() -> None:
    for path in _left.values():
        _remove(path)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _folder(request: dict[str, Any]) -> str:
    folder = os.path.expanduser(str(request["folder"]))
    while not request.get("make", True) and not os.path.isdir(folder):
        above = os.path.dirname(folder)
        if above == folder:
            break
        folder = above
    return folder


def _path(folder: str, token: str) -> str:
    return os.path.join(folder, PREFIX + token)


VERBS = {"leave": leave, "seen": seen, "take": remove_marker}
