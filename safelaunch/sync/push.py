"""Brings a project, or a large file or folder, to a folder on a host; says what it did.

Nothing is sent before every question is settled: files that were changed on the host, and more
bytes than anybody expects.
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
from safelaunch.sync.diff import Difference, Row
from safelaunch.sync.ignore import Rules
from safelaunch.sync.project_tree import Item, Tree, measure, scan, travelling
from safelaunch.sync.sender import Packed, Sender, in_batches, packed, whole
from safelaunch.sync.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from safelaunch.sync.sender import Agent, Pending
    from safelaunch.sync.transfer_progress import Progress

LIMIT = 500_000_000  # bytes above which a sync asks
_PATIENCE = 15.0  # seconds of silence after which another sync counts as dead
_PAUSE = 0.2
_MEASURING = 0.3  # seconds for the sizes of what is skipped
_ROWS = 2000  # of links and folders in one block
_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)


def push_tree(
    agent: Agent,
    project_root: str,
    target: str,
    rules: Rules | None = None,
    *,
    delete: bool = False,
    force: bool = False,
    confirm: Callable[[str], bool] | None = None,
    report: Callable[[str], None] | None = None,
    progress: Callable[[Progress], None] | None = None,
    cache: str | None = None,
    limit: int | None = LIMIT,
) -> Summary:
    """Make a folder on the host hold the project. `cache`: a folder of ours for hashes.

    `confirm` is asked above `limit` bytes; without it that is refused. Raises Refused for that and
    for files that were changed on the host, HostError, and ConfigError for a project that cannot
    be read.
    """
    begun = begin_tree(agent, project_root, target, rules, delete=delete, force=force, cache=cache)
    return begun.finish(confirm=confirm, report=report, progress=progress, limit=limit)


def begin_tree(
    agent: Agent,
    project_root: str,
    target: str,
    rules: Rules | None = None,
    *,
    delete: bool = False,
    force: bool = False,
    cache: str | None = None,
) -> Begun:
    """Look through the project, ask the host what it holds, and wait for nothing.

    Raises ConfigError for a project that cannot be read, HostError. `push_tree` says the rest.
    """
    begun = time.monotonic()
    known = file_hashes.Cache(cache, project_root)
    tree = _scanned(rules or Rules(project_root))
    push = _Push(agent, target, tree, force=force, delete=delete)
    push.begin(known, begun)
    return Begun(push)


class Begun:
    """A sync whose first question is on its way to the host, or answered."""

    def __init__(self, push: _Push) -> None:
        self._push = push

    def finish(
        self,
        *,
        confirm: Callable[[str], bool] | None = None,
        report: Callable[[str], None] | None = None,
        progress: Callable[[Progress], None] | None = None,
        limit: int | None = LIMIT,
    ) -> Summary:
        """Do the rest; all is as `push_tree` says."""
        push = self._push
        push.report = report or _silent
        push.progress, push.confirm, push.limit = progress, confirm, limit
        return push.run()


def push_file(
    agent: Agent,
    path: str,
    target: str,
    progress: Callable[[Progress], None] | None = None,
    *,
    force: bool = False,
    report: Callable[[str], None] | None = None,
    cache: str | None = None,
    place: str = "place: --to DIR",
) -> Summary:
    """Bring a file, or a folder with all that is in it, to a path on the host, byte by byte.

    `place` says in hints how the user chooses that path.

    A cut transfer goes on at the next call. What is there and the same is not sent again. Raises
    Refused where something else is there, HostError, ConfigError.
    """
    begun = time.monotonic()
    known = file_hashes.Cache(cache, path)
    if os.path.isdir(path):
        tree, folder = _scanned(Rules(path, everything=True)), target
    else:
        tree, folder = _alone(path, target)
    for item in tree.items.values():
        item.verbatim = True
    push = _Push(agent, folder, tree, force=force, delete=False)
    push.report, push.progress, push.place = report or _silent, progress, place
    push.begin(known, begun)
    found = push.run()
    # what lies beside a file is no matter of this one
    return found if os.path.isdir(path) else dataclasses.replace(found, left=0)


def _silent(_: str) -> None:
    """Tell nobody."""


def _scanned(rules: Rules) -> Tree:
    try:
        return scan(rules)
    except OSError as e:
        raise ConfigError(f"cannot be read: {e.strerror}", where=rules.root) from e


def _alone(path: str, target: str) -> tuple[Tree, str]:
    folder, _, name = target.rpartition("/")
    name = name or travelling(os.path.basename(path)) or ""
    try:
        info = os.stat(path)
    except OSError as e:
        raise ConfigError(f"cannot be read: {e.strerror}", where=path) from e
    if not os.path.isfile(path) or name in ("", ".", ".."):
        raise ConfigError("is no file and no folder", where=path)
    tree = Tree(os.path.dirname(path))
    tree.items[name] = Item(name, path, "f", info)
    return tree, folder or ("/" if target.startswith("/") else ".")


class _Push:
    def __init__(self, agent: Agent, target: str, tree: Tree, *, force: bool, delete: bool) -> None:
        self.agent = agent
        self.target = target
        self.tree = tree
        self.force = force
        self.delete = delete
        self.limit: int | None = None
        self.confirm: Callable[[str], bool] | None = None
        self.report: Callable[[str], None] = _silent
        self.progress: Callable[[Progress], None] | None = None
        self.asked = False
        self.place = "`workdir`"  # what says where it goes

    def begin(self, cache: file_hashes.Cache, begun: float) -> None:
        """Ask the host what it holds."""
        self.cache, self.begun = cache, begun
        self.digest = diff.digest(self.tree) if cache.fill(self.tree.files) else ""
        self.held = self._ask(take_over=False)

    def run(self) -> Summary:
        """Do what is left to do once the host has answered."""
        try:
            summary = self._run()
        except HostError as e:
            raise self._explained(e) from e
        except Refused:
            self.agent.call("receive.release")
            raise
        finally:
            self.cache.save(self.tree.files)
        return summary

    def _run(self) -> Summary:
        tree = self.tree
        rows, answer = self._compare()
        place = str(answer["target"])
        if answer["same"]:
            return self._summary(place, left=int(answer["left"]))
        recorded = list(rows)
        self._look(rows, fresh=bool(answer["fresh"]))
        self._guard([i for i in tree.files if self._is_new(i, rows.get(i.path))])
        self._hash(diff.doubtful(tree, rows))
        found = diff.compare(tree, rows, recorded, force=self.force)
        if found.conflicts:
            raise self._conflict(found.conflicts)
        self._guard(found.files)
        if found.is_empty and not (found.gone and self.delete):
            gone = [path for path in recorded if path not in tree.items]
            if diff.digest(tree) == answer["digest"] and not gone:
                self.agent.call("receive.release")
                return self._summary(place)
        return self._send(found, recorded, rows, place)

    # -- what is there

    def _ask(self, *, take_over: bool) -> Pending:
        return self.agent.ask_first(
            "receive.compare",
            target=self.target, digest=self.digest, delete=self.delete, take_over=take_over,
        )  # fmt: skip

    def _compare(self) -> tuple[dict[str, Row], Any]:
        told = False
        while True:
            data, answer = whole(self.held.pieces())
            if "busy" not in answer:
                return _rows(data), answer
            if not told:
                self.report(f"another sync of {self.target} is going on: waiting for it")
                told = True
            time.sleep(_PAUSE)
            self.held = self._ask(take_over=answer["busy"] > _PATIENCE)

    def _look(self, rows: dict[str, Row], *, fresh: bool) -> None:
        paths = [] if fresh else diff.unknown(self.tree, rows)
        if paths:
            asked = transfer_blocks.rows([[item.path, item.size] for item in paths])
            answer = self.agent.call("receive.stat_paths", data=[asked])
            rows |= {row[0]: Row(*row) for row in answer["rows"]}

    @staticmethod
    def _is_new(item: Item, row: Row | None) -> bool:
        if row is None or row.state == "g" or row.kind != "f":
            return True
        return item.hash != row.content if item.hash else item.size != row.size

    def _hash(self, items: list[Item]) -> None:
        meter = transfer_progress.Meter("hashing", sum(item.size for item in items), self.progress)
        for item in items:
            try:
                file_hashes.hash_item(item, meter.add)
            except OSError as e:  # noqa: PERF203 - one file out of many
                self.tree.notes.append(f"{item.path}: {e.strerror}: not sent")
                del self.tree.items[item.path]

    # -- what is asked first

    def _guard(self, items: list[Item]) -> None:
        total = sum(item.size for item in items)
        if self.limit is None or total <= self.limit or self.asked:
            return
        self.asked = True
        largest = sorted(items, key=lambda item: -item.size)[:5]
        named = ", ".join(f"{printable(i.path)} ({transfer_size(i.size)})" for i in largest)
        question = (
            f"{quantity(len(items), 'file')}, {transfer_size(total)}, would be "
            f"sent to {self.agent.host}; the largest: {named}"
        )
        if self.confirm is not None and self.confirm(question):
            return
        hint = "leave files out in .safelaunchignore or under `sync: {exclude: [...]}`"
        if self.confirm is None:
            hint = "--large sends them all the same; or " + hint
        raise Refused(question, where=self.tree.root, hint=hint)

    def _conflict(self, conflicts: list[tuple[str, str]]) -> Refused:
        shown = "; ".join(f"{printable(path)} {why}" for path, why in conflicts[:10])
        more = f"; and {len(conflicts) - 10} more" if len(conflicts) > 10 else ""  # noqa: PLR2004
        return Refused(
            f"not overwritten: {shown}{more}",
            where=f"{self.agent.host}:{self.target}",
            hint="fetch what you need with `safelaunch pull`; --force overwrites them",
        )

    # -- what is sent

    def _send(
        self,
        found: Difference,
        recorded: list[str],
        rows: dict[str, Row],
        place: str,
    ) -> Summary:
        total = sum(item.size for item in found.files)
        meter = transfer_progress.Meter("sending", total, self.progress)
        sender = Sender(self.agent, meter, force=self.force)
        small = [item for item in found.files if item.size <= file_hashes.LARGE]
        large = [item for item in found.files if item.size > file_hashes.LARGE]
        removed = self._to_remove(found, rows)
        left = [path for path in recorded if path not in self.tree.items]

        def finish() -> Packed:
            for item in sender.lost:
                self.tree.items.pop(item.path, None)
            bad = sender.lost or sender.conflicts
            digest = "" if bad else diff.digest(self.tree)
            return packed(x=removed, finish={"digest": digest, "left": left})

        def blocks() -> Iterator[Packed]:
            yield from self._without_contents(found)
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
        sent = [item for item in found.files if item not in sender.lost]
        return self._summary(place, sent=sent, sender=sender, left=sender.left)

    def _without_contents(self, found: Difference) -> Iterator[Packed]:
        # what stood where a file or link is to stand now goes first
        blocking = [r.path for r in found.gone if _is_blocking(r.path, self.tree)]
        if blocking and self.delete:
            yield packed(x=sorted(blocking, reverse=True))
        lists: tuple[tuple[str, list[list[Any]]], ...] = (
            ("d", [[i.path, i.mode] for i in found.folders]),
            ("l", [[i.path, i.link] for i in found.links]),
            ("a", [[i.path, i.kind, i.mode, i.content] for i in found.adopted]),
        )
        for kind, all_of_it in lists:
            for some in in_batches(all_of_it, _ROWS):
                yield packed(**{kind: some})

    def _to_remove(self, found: Difference, rows: dict[str, Row]) -> list[str]:
        """Return what to remove, inner paths first; what is only ignored here now stays there."""
        lost = [r.path for r in rows.values() if r.state == "g" and r.path not in self.tree.items]
        if not self.delete:
            return lost  # from the record
        gone = [row.path for row in found.gone if not self._is_here(row.path)]
        return sorted({*lost, *gone}, reverse=True)

    def _is_here(self, path: str) -> bool:
        names = path.split("/")
        return not _is_blocking(path, self.tree) and os.path.lexists(
            os.path.join(self.tree.root, *names)
        )

    def _summary(
        self,
        place: str,
        *,
        sent: list[Item] | None = None,
        sender: Sender | None = None,
        left: int = 0,
    ) -> Summary:
        files = self.tree.files
        sizes = measure(self.tree.skipped, _MEASURING) if sent else {}
        return Summary(
            target=place,
            files=len(files),
            size=sum(item.size for item in files),
            sent=len(sent or ()),
            sent_size=sum(item.size for item in sent or ()),
            wire_size=sender.sent if sender else 0,
            removed=sender.removed if sender else 0,
            left=left,
            kept=tuple(sender.kept) if sender else (),
            skipped=tuple(self.tree.skipped),
            skipped_sizes=sizes,
            notes=tuple(self.tree.notes),
            seconds=time.monotonic() - self.begun,
        )

    def _explained(self, error: HostError) -> HostError:
        """Return an error of the host in words that say what to do."""
        number, path = getattr(error, "errno", None), getattr(error, "path", None)
        where = f"{self.agent.host}:{path or self.target}"
        said = error.message.removesuffix(f" ({path})")
        if number in (errno.ENOSPC, errno.EDQUOT):
            return HostError(
                said,
                where=where,
                hint=f"free space there, or choose another {self.place}; what has arrived stays",
            )
        if number in _ACCESS:
            return HostError(said, where=where, hint=f"choose a {self.place} that you may write to")
        if number in (errno.ENOTDIR, errno.EEXIST):
            return HostError("is no folder", where=where, hint=f"choose another {self.place}")
        return error


def _rows(data: bytes) -> dict[str, Row]:
    found = transfer_blocks.read_rows(data) if data else []
    return {row[0]: Row(*row) for row in found}


def _is_blocking(path: str, tree: Tree) -> bool:
    """Whether something that is no folder here stands on the way to a path."""
    names = path.split("/")
    above = ("/".join(names[:count]) for count in range(1, len(names)))
    return any(
        (item := tree.items.get(folder)) is not None and item.kind != "d" for folder in above
    )
