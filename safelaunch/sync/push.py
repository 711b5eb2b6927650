"""Copy a project, or a large file or folder, to a folder on a host, and return a summary.

All checks come before the first file is sent: files that were changed on the host, and the size
limit.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import time
from typing import TYPE_CHECKING, Any

from safelaunch.errors import ConfigError, HostError, Refused
from safelaunch.runtime.plain_text import printable
from safelaunch.runtime.transfer import blocks as transfer_blocks
from safelaunch.runtime.units import quantity, transfer_size
from safelaunch.sync import diff, file_hashes, transfer_progress
from safelaunch.sync.diff import Difference, RemoteEntry
from safelaunch.sync.ignore import Rules
from safelaunch.sync.project_tree import Entry, Tree, scan, synced_path, total_sizes
from safelaunch.sync.sender import PackedBlock, Sender, batches, pack_header, read_all
from safelaunch.sync.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from safelaunch.sync.sender import AgentCalls, PendingAnswer
    from safelaunch.sync.transfer_progress import TransferProgress

LIMIT = 500_000_000  # bytes above which a sync needs a confirmation
_STALE_SYNC = 15.0  # seconds of silence after which another sync counts as dead
_POLL = 0.2
_MEASURE_TIME = 0.3  # seconds for the sizes of what is skipped
_ROWS = 2000  # of links and folders in one block
_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)


def push_tree(
    agent: AgentCalls,
    project_root: str,
    target: str,
    rules: Rules | None = None,
    *,
    delete: bool = False,
    force: bool = False,
    confirm: Callable[[str], bool] | None = None,
    report: Callable[[str], None] | None = None,
    progress: Callable[[TransferProgress], None] | None = None,
    cache: str | None = None,
    limit: int | None = LIMIT,
) -> Summary:
    """Sync the project to a folder on the host. `cache`: the folder of the hash cache.

    `confirm` is asked above `limit` bytes; without it that is refused. Raises Refused for that and
    for files that were changed on the host, HostError, and ConfigError for a project that cannot
    be read.
    """
    pending = start_push(
        agent, project_root, target, rules, delete=delete, force=force, cache=cache
    )
    return pending.finish(confirm=confirm, report=report, progress=progress, limit=limit)


def start_push(
    agent: AgentCalls,
    project_root: str,
    target: str,
    rules: Rules | None = None,
    *,
    delete: bool = False,
    force: bool = False,
    cache: str | None = None,
) -> PendingPush:
    """Scan the project and request the state of the host, without waiting for the answer.

    Raises ConfigError for a project that cannot be read, HostError. `push_tree` says the rest.
    """
    started = time.monotonic()
    hash_cache = file_hashes.HashCache(cache, project_root)
    tree = _scan(rules or Rules(project_root))
    push = _Push(agent, target, tree, force=force, delete=delete)
    push.request_state(hash_cache, started)
    return PendingPush(push)


class PendingPush:
    """A sync that has sent its first request to the host."""

    def __init__(self, push: _Push) -> None:
        self._push = push

    def finish(
        self,
        *,
        confirm: Callable[[str], bool] | None = None,
        report: Callable[[str], None] | None = None,
        progress: Callable[[TransferProgress], None] | None = None,
        limit: int | None = LIMIT,
    ) -> Summary:
        """Complete the sync; parameters and errors are those of `push_tree`."""
        push = self._push
        push.report = report or _no_report
        push.progress, push.confirm, push.limit = progress, confirm, limit
        return push.run()


def push_file(
    agent: AgentCalls,
    path: str,
    target: str,
    progress: Callable[[TransferProgress], None] | None = None,
    *,
    force: bool = False,
    report: Callable[[str], None] | None = None,
    cache: str | None = None,
    destination: str = "place: --to DIR",
) -> Summary:
    """Copy a file, or a folder with all its files, to a path on the host, unchanged.

    `destination` tells in hints how the user sets that path.

    The next call resumes an interrupted transfer. Identical files are not sent again.
    Raises Refused if the path exists with other content, HostError, ConfigError.
    """
    started = time.monotonic()
    hash_cache = file_hashes.HashCache(cache, path)
    if os.path.isdir(path):
        tree, folder = _scan(Rules(path, everything=True)), target
    else:
        tree, folder = _single_file(path, target)
    for item in tree.items.values():
        item.verbatim = True
    push = _Push(agent, folder, tree, force=force, delete=False)
    push.report, push.progress, push.destination = report or _no_report, progress, destination
    push.request_state(hash_cache, started)
    summary = push.run()
    # other files in the folder do not belong to this transfer
    return summary if os.path.isdir(path) else dataclasses.replace(summary, left=0)


def _no_report(_: str) -> None:
    """Discard a message."""


def _scan(rules: Rules) -> Tree:
    try:
        return scan(rules)
    except OSError as e:
        raise ConfigError(f"cannot be read: {e.strerror}", where=rules.root) from e


def _single_file(path: str, target: str) -> tuple[Tree, str]:
    folder, _, name = target.rpartition("/")
    name = name or synced_path(os.path.basename(path)) or ""
    try:
        info = os.stat(path)
    except OSError as e:
        raise ConfigError(f"cannot be read: {e.strerror}", where=path) from e
    if not os.path.isfile(path) or name in ("", ".", ".."):
        raise ConfigError("not a file or folder", where=path)
    tree = Tree(os.path.dirname(path))
    tree.items[name] = Entry(name, path, "f", info)
    return tree, folder or ("/" if target.startswith("/") else ".")


class _Push:
    def __init__(
        self, agent: AgentCalls, target: str, tree: Tree, *, force: bool, delete: bool
    ) -> None:
        self.agent = agent
        self.target = target
        self.tree = tree
        self.force = force
        self.delete = delete
        self.limit: int | None = None
        self.confirm: Callable[[str], bool] | None = None
        self.report: Callable[[str], None] = _no_report
        self.progress: Callable[[TransferProgress], None] | None = None
        self.confirmed = False
        self.destination = "`workdir`"  # where the user sets the target, for hints

    def request_state(self, cache: file_hashes.HashCache, started: float) -> None:
        """Request the state of the folder on the host."""
        self.cache, self.started = cache, started
        self.digest = diff.digest(self.tree) if cache.fill_hashes(self.tree.files) else ""
        self.pending = self._request_state(take_over=False)

    def run(self) -> Summary:
        """Complete the sync once the host has answered."""
        try:
            summary = self._run()
        except HostError as e:
            raise self._with_hint(e) from e
        except Refused:
            self.agent.call("receive.release")
            raise
        finally:
            self.cache.save(self.tree.files)
        return summary

    def _run(self) -> Summary:
        tree = self.tree
        rows, answer = self._compare()
        destination = str(answer["target"])
        if answer["same"]:
            return self._summary(destination, left=int(answer["left"]))
        recorded = list(rows)
        self._check_unrecorded(rows, fresh=bool(answer["fresh"]))
        self._guard([i for i in tree.files if self._is_new(i, rows.get(i.path))])
        self._hash(diff.needs_hash(tree, rows))
        changes = diff.compare(tree, rows, recorded, force=self.force)
        if changes.conflicts:
            raise self._conflict(changes.conflicts)
        self._guard(changes.files)
        if changes.is_empty and not (changes.deleted and self.delete):
            deleted = [path for path in recorded if path not in tree.items]
            if diff.digest(tree) == answer["digest"] and not deleted:
                self.agent.call("receive.release")
                return self._summary(destination)
        return self._send(changes, recorded, rows, destination)

    # -- state of the host

    def _request_state(self, *, take_over: bool) -> PendingAnswer:
        return self.agent.ask_first(
            "receive.compare",
            target=self.target, digest=self.digest, delete=self.delete, take_over=take_over,
        )  # fmt: skip

    def _compare(self) -> tuple[dict[str, RemoteEntry], Any]:
        reported = False
        while True:
            data, answer = read_all(self.pending.pieces())
            if "busy" not in answer:
                return _parse_entries(data), answer
            if not reported:
                self.report(f"another sync of {self.target} is in progress: waiting for it")
                reported = True
            time.sleep(_POLL)
            self.pending = self._request_state(take_over=answer["busy"] > _STALE_SYNC)

    def _check_unrecorded(self, rows: dict[str, RemoteEntry], *, fresh: bool) -> None:
        paths = [] if fresh else diff.not_recorded(self.tree, rows)
        if paths:
            query = transfer_blocks.rows([[item.path, item.size] for item in paths])
            answer = self.agent.call("receive.stat_paths", data=[query])
            rows |= {row[0]: RemoteEntry(*row) for row in answer["rows"]}

    @staticmethod
    def _is_new(item: Entry, row: RemoteEntry | None) -> bool:
        if row is None or row.state == "g" or row.kind != "f":
            return True
        return item.hash != row.content if item.hash else item.size != row.size

    def _hash(self, items: list[Entry]) -> None:
        meter = transfer_progress.Meter("hashing", sum(item.size for item in items), self.progress)
        for item in items:
            try:
                file_hashes.hash_item(item, meter.add)
            except OSError as e:  # noqa: PERF203 - one file out of many
                self.tree.notes.append(f"{item.path}: {e.strerror}: not sent")
                del self.tree.items[item.path]

    # -- checks before the transfer

    def _guard(self, items: list[Entry]) -> None:
        total = sum(item.size for item in items)
        if self.limit is None or total <= self.limit or self.confirmed:
            return
        self.confirmed = True
        largest = sorted(items, key=lambda item: -item.size)[:5]
        listed = ", ".join(f"{printable(i.path)} ({transfer_size(i.size)})" for i in largest)
        question = (
            f"{quantity(len(items), 'file')}, {transfer_size(total)}, would be "
            f"sent to {self.agent.host}; the largest: {listed}"
        )
        if self.confirm is not None and self.confirm(question):
            return
        hint = "exclude files in .safelaunchignore or under `sync: {exclude: [...]}`"
        if self.confirm is None:
            hint = "--large sends them anyway; or " + hint
        raise Refused(question, where=self.tree.root, hint=hint)

    def _conflict(self, conflicts: list[tuple[str, str]]) -> Refused:
        shown = "; ".join(f"{printable(path)} {why}" for path, why in conflicts[:10])
        more = f"; and {len(conflicts) - 10} more" if len(conflicts) > 10 else ""  # noqa: PLR2004
        return Refused(
            f"not overwritten: {shown}{more}",
            where=f"{self.agent.host}:{self.target}",
            hint="fetch what you need with `safelaunch pull`; --force overwrites them",
        )

    # -- transfer

    def _send(
        self,
        changes: Difference,
        recorded: list[str],
        rows: dict[str, RemoteEntry],
        destination: str,
    ) -> Summary:
        total = sum(item.size for item in changes.files)
        meter = transfer_progress.Meter("sending", total, self.progress)
        sender = Sender(self.agent, meter, force=self.force)
        small = [item for item in changes.files if item.size <= file_hashes.LARGE]
        large = [item for item in changes.files if item.size > file_hashes.LARGE]
        removed = self._to_remove(changes, rows)
        left = [path for path in recorded if path not in self.tree.items]

        def finish() -> PackedBlock:
            for item in sender.lost:
                self.tree.items.pop(item.path, None)
            incomplete = sender.lost or sender.conflicts
            digest = "" if incomplete else diff.digest(self.tree)
            return pack_header(x=removed, finish={"digest": digest, "left": left})

        def blocks() -> Iterator[PackedBlock]:
            yield from self._without_contents(changes)
            yield from sender.pack(small)
            if not large:
                yield finish()

        sender.blocks(blocks(), need=total)
        if large:
            for item in large:
                sender.large(item)
            sender.blocks(iter([finish()]), need=0)
        self.tree.notes += sender.notes
        if sender.conflicts:
            raise self._conflict(sender.conflicts)
        sent = [item for item in changes.files if item not in sender.lost]
        return self._summary(destination, sent=sent, sender=sender, left=sender.left)

    def _without_contents(self, changes: Difference) -> Iterator[PackedBlock]:
        # first remove what blocks the path of a new file or link
        blocking = [r.path for r in changes.deleted if _blocks_path(r.path, self.tree)]
        if blocking and self.delete:
            yield pack_header(x=sorted(blocking, reverse=True))
        lists: tuple[tuple[str, list[list[Any]]], ...] = (
            ("d", [[i.path, i.mode] for i in changes.folders]),
            ("l", [[i.path, i.link] for i in changes.links]),
            ("a", [[i.path, i.kind, i.mode, i.content] for i in changes.adopted]),
        )
        for kind, rows_ in lists:
            for batch in batches(rows_, _ROWS):
                yield pack_header(**{kind: batch})

    def _to_remove(self, changes: Difference, rows: dict[str, RemoteEntry]) -> list[str]:
        """Return the paths to remove, inner paths first; paths that are now only ignored stay."""
        lost = [r.path for r in rows.values() if r.state == "g" and r.path not in self.tree.items]
        if not self.delete:
            return lost  # from the record
        deleted = [row.path for row in changes.deleted if not self._exists_locally(row.path)]
        return sorted({*lost, *deleted}, reverse=True)

    def _exists_locally(self, path: str) -> bool:
        names = path.split("/")
        return not _blocks_path(path, self.tree) and os.path.lexists(
            os.path.join(self.tree.root, *names)
        )

    def _summary(
        self,
        destination: str,
        *,
        sent: list[Entry] | None = None,
        sender: Sender | None = None,
        left: int = 0,
    ) -> Summary:
        files = self.tree.files
        sizes = total_sizes(self.tree.skipped, _MEASURE_TIME) if sent else {}
        return Summary(
            target=destination,
            files=len(files),
            size=sum(item.size for item in files),
            sent=len(sent or ()),
            sent_size=sum(item.size for item in sent or ()),
            wire_size=sender.sent if sender else 0,
            removed=sender.removed if sender else 0,
            left=left,
            not_removed=tuple(sender.not_removed) if sender else (),
            skipped=tuple(self.tree.skipped),
            skipped_sizes=sizes,
            notes=tuple(self.tree.notes),
            seconds=time.monotonic() - self.started,
        )

    def _with_hint(self, error: HostError) -> HostError:
        """Return an error of the host with a hint."""
        number, path = getattr(error, "errno", None), getattr(error, "path", None)
        where = f"{self.agent.host}:{path or self.target}"
        message = error.message.removesuffix(f" ({path})")
        if number in (errno.ENOSPC, errno.EDQUOT):
            return HostError(
                message,
                where=where,
                hint=f"free space there, or choose another {self.destination}; sent files remain",
            )
        if number in _ACCESS:
            return HostError(
                message, where=where, hint=f"choose a {self.destination} that you may write to"
            )
        if number in (errno.ENOTDIR, errno.EEXIST):
            return HostError("not a folder", where=where, hint=f"choose another {self.destination}")
        return error


def _parse_entries(data: bytes) -> dict[str, RemoteEntry]:
    rows = transfer_blocks.read_rows(data) if data else []
    return {row[0]: RemoteEntry(*row) for row in rows}


def _blocks_path(path: str, tree: Tree) -> bool:
    """Whether a local file or link occupies a parent folder of a path."""
    names = path.split("/")
    above = ("/".join(names[:count]) for count in range(1, len(names)))
    return any(
        (item := tree.items.get(folder)) is not None and item.kind != "d" for folder in above
    )
