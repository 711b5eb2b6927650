"""Errors that TRL and transformers raise: how many a signature or the library explains."""

from __future__ import annotations

import ast
import io
import os
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rows import Row

from safelaunch.diagnose.logs.sources import LogReader, LogSource
from safelaunch.diagnose.root_cause import diagnose

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARIES = "SAFELAUNCH_LIBRARIES"  # a site-packages folder with trl and transformers
SOURCES = (
    *("trl/trainer/*.py", "trl/scripts/*.py"),
    *("transformers/trainer*.py", "transformers/training_args*.py"),
)
RECOGNISED = 150  # texts at least: those of 2026-11 were 231, of which 40 were recognised before
FILLED = "7"  # in the place of what the program fills in
LOG = """Traceback (most recent call last):
  File "/home/me/train.py", line 12, in <module>
    trainer.train()
  File "/opt/env/lib/python3.11/site-packages/{path}", line {line}, in _check
    raise {kind}(
{kind}: {text}
"""


class ErrorText(NamedTuple):
    """A literal text that a library raises."""

    path: str
    line: int
    kind: str
    text: str


def error_texts() -> Iterator[Row]:
    """Yield how many of the error texts of TRL and transformers `diagnose` can tell."""
    what = "error texts of {} recognised by a signature, or told with the library and its line"
    folder = os.environ.get(LIBRARIES, "")
    texts = {text.text: text for text in _texts(Path(folder))} if folder else {}
    if not texts:
        reason = f"{LIBRARIES} names no site-packages folder with trl and transformers"
        yield Row(what.format("TRL and transformers"), reason, f">= {RECOGNISED}", None)
        return
    counts = Counter(map(_recognised_by, texts.values()))
    by_signature, by_library = counts["signature"], counts["library"]
    total = by_signature + by_library
    yield Row(
        what.format(_versions(Path(folder))),
        f"{total}/{len(texts)} ({by_signature} by a signature, {by_library} by the library)",
        f">= {RECOGNISED}",
        total >= RECOGNISED,
    )


def _texts(folder: Path) -> Iterator[ErrorText]:
    for path in sorted(chain.from_iterable(folder.glob(pattern) for pattern in SOURCES)):
        name = path.relative_to(folder).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                text = _literal(node.exc.args[0])
                if text:
                    yield ErrorText(name, node.lineno, ast.unparse(node.exc.func), text)


def _literal(node: ast.expr) -> str:
    """Return the text of a literal, what is filled in replaced; "" for any other expression."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_literal(value) or FILLED for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _literal(node.left) + _literal(node.right)
    return ""


def _recognised_by(error: ErrorText) -> str:
    log = LOG.format(**error._asdict())
    finding = diagnose([LogReader(LogSource("t.log"), io.BytesIO(log.encode()))]).causes[0]
    if finding.source:
        return "signature"
    library = finding.library.path if finding.library else ""
    is_whole = " ".join(error.text.split()) in " ".join(finding.message.split())
    return "library" if library == error.path and is_whole else "nothing"


def _versions(folder: Path) -> str:
    names = sorted(
        path.name.removesuffix(".dist-info").replace("-", " ")
        for name in ("trl", "transformers")
        for path in folder.glob(f"{name}-*.dist-info")
    )
    return " and ".join(names)
