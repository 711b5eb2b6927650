"""Compares the code of two runs: commits, changed files, and contents by their hashes."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.report.diff.model import Change, Group, diff_mappings
from safelaunch.runtime.plain_text import shortened
from safelaunch.runtime.records import Checkout, CodeRecord, Provenance

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.report.diff.model import RunSnapshot

_MAX_FILES = 8  # changed files in a group
_DIGITS = 16  # of a hash that is shown
_IMPORTED = "settings and files that a rank imported"


class _Code(NamedTuple):
    """What is recorded of the code of a run; `imported` is None where no rank has said."""

    git: Checkout
    files: Mapping[str, str] | None
    imported: frozenset[str] | None
    unknown: str


def code_group(before: RunSnapshot, after: RunSnapshot) -> Group:
    """Return what differs in the code, and what of it is not known."""
    missing = [snapshot.id for snapshot in (before, after) if not _has_code(snapshot)]
    if missing:
        return Group("code", unknown=f"nothing is recorded for {' and '.join(missing)}")
    # of two runs on hosts all files that were sent are compared, else those that the host recorded
    is_whole = all(
        snapshot.code_files and _code_record(snapshot).place for snapshot in (before, after)
    )
    was, now = (_code(snapshot, is_whole=is_whole) for snapshot in (before, after))
    contents = _content_changes(was, now)
    not_sure = [s.id for s, code in ((before, was), (after, now)) if code.imported is None]
    basis = f"files on disk: what {' and '.join(not_sure)} imported is not recorded"
    return Group(
        "code",
        (*_git_changes(was.git, now.git), *contents),
        "; ".join(code.unknown for code in (was, now) if code.unknown),
        (basis if not_sure else _IMPORTED) if contents else "",
    )


def _has_code(snapshot: RunSnapshot) -> bool:
    return any(node.record or node.code for node in snapshot.nodes)


def _record(snapshot: RunSnapshot) -> Provenance:
    return next((node.record for node in snapshot.nodes if node.record), Provenance())


def _code_record(snapshot: RunSnapshot) -> CodeRecord:
    return next((node.code for node in snapshot.nodes if node.code), CodeRecord())


def _code(snapshot: RunSnapshot, *, is_whole: bool) -> _Code:
    record, launched = _record(snapshot), _code_record(snapshot)
    git = launched.git or record.git or Checkout()
    imported = None if record.imported is None else frozenset(record.imported)
    if is_whole:
        prefix = posixpath.relpath(record.cwd or "/", launched.place or "/")
        if imported is not None:
            names = (posixpath.normpath(posixpath.join(prefix, name)) for name in imported)
            imported = None if prefix.startswith("..") else frozenset(names)
        return _Code(git, snapshot.code_files, imported, "")
    is_clean = bool(git.commit) and git.changed is not None and not git.changed
    unknown = ""
    if not git.commit and record.files is None:
        unknown = f"no git, and no file is recorded for {snapshot.id}"
    elif record.files is None and not is_clean:
        unknown = f"the contents of changed files are not recorded for {snapshot.id}"
    elif record.more_files and not is_clean:
        unknown = f"{record.more_files} more files are not recorded for {snapshot.id}"
    return _Code(git, record.files, imported, unknown)


def _content_changes(before: _Code, after: _Code) -> list[Change]:
    """Return which files have another content, or are recorded for one run only."""
    if before.files is None or after.files is None:
        return []
    was, now = before.files, after.files
    names = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    others: list[str] = []
    if before.imported is not None and after.imported is not None:
        imported = before.imported | after.imported
        others = [name for name in names if name.endswith(".py") and name not in imported]
    changes = [
        Change(name, _shown(was.get(name)), _shown(now.get(name)))
        for name in names
        if name not in others
    ]
    if len(changes) > _MAX_FILES:
        count = f"{len(changes) - _MAX_FILES} more files differ"
        changes = [*changes[:_MAX_FILES], Change("contents", None, count)]
    if others:
        changes.append(Change("differ, not imported", None, shortened(others)))
    return changes


def _shown(content: str | None) -> str | None:
    return None if content is None else f"content {content[:_DIGITS]}"


def _git_changes(was: Checkout, now: Checkout) -> list[Change]:
    changes = diff_mappings({"commit": was.commit}, {"commit": now.commit})
    if was.branch and now.branch:
        changes += diff_mappings({"branch": was.branch}, {"branch": now.branch})
    first, second = list(was.changed or ()), list(now.changed or ())
    changes += _listed([name for name in second if name not in first], is_new=True)
    return changes + _listed([name for name in first if name not in second], is_new=False)


def _listed(names: Sequence[str], *, is_new: bool) -> list[Change]:
    shown = list(names[:_MAX_FILES])
    if len(names) > _MAX_FILES:
        shown.append(f"and {len(names) - _MAX_FILES} more")
    return [Change("changed file", *((None, name) if is_new else (name, None))) for name in shown]
