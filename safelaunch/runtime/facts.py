"""Fetches the facts of this machine: one child, run by the job's interpreter, a part at a time.

The child (factsparts.py) prints a line of JSON for each part as it is done. What hangs is given up
there, and the child itself here: a device or file system that does not answer stops nobody.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time

from safelaunch.runtime import FOLDER, factsparts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from safelaunch.runtime.wire import Link

EACH = 10.0  # seconds for a part
ROOM = 8.0  # seconds for all parts, beside those of the cards: two commands in a row
DEEP = 90.0  # seconds for the import of torch
OLDEST = (3, 8)
_TOO_OLD = 93
_MOST = 1 << 26  # bytes of the answer

# Any Python 3 must be able to run it up to its version check. The job's own folder is no place for
# modules here, and ours is on the path only while ours are imported.
_BOOT = """
import sys
if sys.version_info < (3, 8):
    print("%d.%d.%d" % sys.version_info[:3])
    sys.exit(93)
sys.path[:1] = []
sys.path.insert(0, ROOT)
from safelaunch.runtime import factsparts
del sys.path[0]
factsparts.main(sys.argv[1:])
"""


def probe(request: dict[str, Any], link: Link | None) -> dict[str, Any]:
    """Return {"parts": {name: {"value": ...} or {"skip": why}}, "seconds", "now", "python"}.

    `python` is the job's interpreter (the agent's own without), `cwd` its folder, `deep` imports
    torch, `limit` is what a part may take (10 s without). Where that interpreter does not run, all
    else is told by the agent's own.
    """
    del link
    begun = time.monotonic()
    wanted = os.path.expanduser(str(request.get("python") or sys.executable))
    each = float(request.get("limit") or EACH)
    deep = bool(request.get("deep"))
    words = [os.path.expanduser(str(request.get("cwd") or os.getcwd())), "--limit=%r" % each]
    words += ["--deep"] if deep else []
    patience = ROOM + max(2 * each, DEEP if deep else 0)
    parts, why = _ask(wanted, words, patience)
    if why is not None and wanted != sys.executable:
        parts, other = _ask(sys.executable, words, patience)
        for name in ("python", "torch", "deep"):
            parts.pop(name, None)
        parts["python"] = {"skip": "%s: %s" % (wanted, why)}
        why = other
    if why is not None:
        parts.setdefault("python", {"skip": why})
    seconds = round(time.monotonic() - begun, 3)
    return {"parts": parts, "seconds": seconds, "now": time.time(), "python": wanted}


def _ask(python: str, words: list[str], patience: float) -> tuple[dict[str, Any], str | None]:
    """Return the parts that an interpreter told, and why it told none."""
    root = os.path.dirname(os.path.dirname(FOLDER))
    boot = _BOOT.replace("ROOT", repr(root))
    try:
        child = subprocess.Popen(
            [python, "-B", "-c", boot, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as e:
        return {}, getattr(e, "strerror", None) or str(e)
    text, said, is_late = _listen(child, time.monotonic() + patience)
    code = _let_go(child)
    parts: dict[str, Any] = {}
    for line in text.splitlines():
        try:
            name, told = json.loads(line)
        except (ValueError, TypeError):
            continue
        parts[str(name)] = told
    if parts:
        return parts, None
    if code == _TOO_OLD:
        wanted = "%d.%d" % OLDEST
        return {}, "Python %s is older than %s" % (text.strip()[:20], wanted)
    if is_late:
        return {}, "the interpreter did not answer in time"
    last = said.strip().splitlines()[-1:] or ["no word"]
    return {}, "the interpreter ended with exit code %s: %s" % (code, last[0][:300])


def _listen(child: subprocess.Popen[bytes], until: float) -> tuple[str, str, bool]:
    """Return what a child wrote to stdout and stderr until it closed them, and if it was late."""
    streams = {one.fileno(): bytearray() for one in (child.stdout, child.stderr) if one}
    out, err = list(streams)
    left = list(streams)
    while left and time.monotonic() < until and len(streams[out]) < _MOST:
        for fd in select.select(left, [], [], max(0.0, until - time.monotonic()))[0]:
            piece = os.read(fd, 1 << 16)
            if fd == out or len(streams[err]) < 1 << 16:
                streams[fd] += piece
            if not piece:
                left.remove(fd)
        if b'\n["end", ' in streams[out]:
            break  # the child may still be held up in the kernel, by what it gave up
    text = streams[out].decode("utf-8", "replace")
    return text, streams[err].decode("utf-8", "replace"), bool(left)


def _let_go(child: subprocess.Popen[bytes]) -> int | None:
    """Return the exit code of a child that ends now; one that cannot be ended is left alone."""
    for stream in (child.stdout, child.stderr):
        if stream is not None:
            stream.close()
    for patience in (0.5, 0.5):
        try:
            return child.wait(patience)
        except subprocess.TimeoutExpired:
            factsparts.kill(child)
    child.returncode = -9  # in the kernel (D state): nobody waits for it
    return None


VERBS = {"probe": probe}
