"""Compares the code of two runs: commits, changed files, and contents by their hashes."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.report.diff.model import Change, Group, diff_mappings
from safelaunch.runtime.code.launch_record import EDITED
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
    edited: frozenset[str] = frozenset()  # files whose contents at the launch are not known


def code_group(before: RunSnapshot, after: RunSnapshot) -> Group:
    """Return what differs in the code, and what of it is not known."""
    missing = [snapshot.id for snapshot in (before, after) if not _has_code(snapshot)]
    if missing:
        return Group("code", unknown=f"nothing is recorded for {' and '.join(missing)}")
    # all files of the launch, where both runs have the same list: of hosts what was sent, else code
    records = [_code_record(snapshot) for snapshot in (before, after)]
    is_whole = bool(before.code_files and after.code_files)
    is_whole = is_whole and len({record.target is None for record in records}) == 1
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
    files = record.files
    edited = frozenset(name for name, why in launched.not_stored.items() if why == EDITED)
    if is_whole:
        files, imported = _launched_files(snapshot, launched, record)
        if launched.target is not None:
            return _Code(git, files, imported, "")
    is_clean = bool(git.commit) and git.changed is not None and not git.changed
    unknown = ""
    if not git.commit and files is None:
        unknown = f"no git, and no file is recorded for {snapshot.id}"
    elif files is None and not is_clean:
        unknown = f"the contents of changed files are not recorded for {snapshot.id}"
    elif record.more_files and not is_clean:
        unknown = f"{record.more_files} more files are not recorded for {snapshot.id}"
    elif edited:
        unknown = f"{shortened(sorted(edited))} changed during the start of {snapshot.id}"
    return _Code(git, files, imported, unknown, edited)


def _launched_files(
    snapshot: RunSnapshot, launched: CodeRecord, record: Provenance
) -> tuple[dict[str, str], frozenset[str] | None]:
    """Return the files of the launch by their paths in the project, and the imported ones.

    Those that lie elsewhere, as the host has recorded them, have absolute paths.
    """
    root = launched.target or launched.root
    prefix = posixpath.relpath(record.cwd or root, root)
    inside = tuple(f"{folder}/" for folder in (root, launched.project) if folder)
    others = {
        name: content
        for name, content in (record.files or {}).items()
        if name.startswith("/") and not name.startswith(inside)
    }
    files = {**(snapshot.code_files or {}), **others}
    if record.imported is None or prefix.startswith(".."):
        return files, None
    names = (posixpath.normpath(posixpath.join(prefix, name)) for name in record.imported)
    return files, frozenset(names)


def _content_changes(before: _Code, after: _Code) -> list[Change]:
    """Return which files have another content, or are recorded for one run only."""
    if before.files is None or after.files is None:
        return []
    was, now = before.files, after.files
    edited = before.edited | after.edited
    names = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    names = [name for name in names if name not in edited]
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
