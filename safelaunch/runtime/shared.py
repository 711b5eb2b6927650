"""Whether two machines see one folder: a file that one leaves there, and the other finds."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from safelaunch.runtime.wire import Link

PREFIX = ".safelaunch-seen-"


def leave(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Leave a file for `token` in `folder`; `left` is false where that fails.

    The folder is made; with `make` false the nearest one above it that exists is taken instead.
    """
    del link
    folder = _folder(request)
    try:
        os.makedirs(folder, exist_ok=True)
        fd = os.open(_path(folder, request["token"]), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.close(fd)
    except OSError:
        return {"left": False}
    return {"left": True}


def seen(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Return which of `tokens` are seen in `folder`."""
    del link
    folder = _folder(request)
    return {"seen": [t for t in request["tokens"] if os.path.exists(_path(folder, t))]}


def take(request: dict[str, Any], link: Link) -> dict[str, Any]:
    """Remove the file for `token`."""
    del link
    try:
        os.unlink(_path(_folder(request), request["token"]))
    except OSError:
        pass
    return {}


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


VERBS = {"leave": leave, "seen": seen, "take": take}
