"""Copy a project, or a large file or folder, to a folder on a host, and return a summary.

All checks come before the first file is sent: files that were changed on the host, and the size
limit.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.errors import ConfigError, HostError, Refused
from safelaunch.runtime.plain_text import clipped, printable
from safelaunch.runtime.transfer import blocks as transfer_blocks
from safelaunch.runtime.units import quantity, transfer_size
from safelaunch.sync import answers, diff, file_hashes, ignore, transfer_progress
from safelaunch.sync.diff import Difference, RemoteEntry
from safelaunch.sync.ignore import Rules
from safelaunch.sync.manifest import manifest_hash
from safelaunch.sync.project_scan import ProjectScan, ScanResult, scan_tree, tree_digest
from safelaunch.sync.project_tree import Entry, Tree, synced_path, total_sizes
from safelaunch.sync.sender import PackedBlock, Sender, batches, pack_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from safelaunch.sync.project_tree import Skipped
    from safelaunch.sync.sender import AgentCalls, PendingAnswer
    from safelaunch.sync.transfer_progress import TransferProgress

_NO_SIBLING = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG)  # of a folder
LIMIT = 500_000_000  # bytes above which a sync needs a confirmation
_STALE_SYNC = 15.0  # seconds of silence after which another sync counts as dead
_POLL = 0.2
_MEASURE_TIME = 0.3  # seconds for the sizes of what is skipped
_ROWS = 2000  # of links and folders in one block
_STAT_ROWS = 20_000  # of paths in one request, whose answer is one message


class RunSync(NamedTuple):
    """The run that a sync is for: what others run there keeps the files that it has."""

    run: str  # its id
    owner: str = ""  # the checkout's id; "" for a folder that checkouts share
    others: Sequence[tuple[AgentCalls, str]] = ()  # further hosts that see the folder, as what path

    @property
    def is_shared(self) -> bool:
        """Whether all runs use one folder, whoever syncs to it."""
        return not self.owner


@dataclasses.dataclass(frozen=True, slots=True)
class Summary:
    """The result of a sync. `target` is the resolved path of the folder on the host."""

    target: str
    files: int  # of the project
    size: int
    sent: int
    sent_size: int
    wire_size: int
    removed: int
    left: int  # files of earlier syncs that the project no longer has
    not_removed: tuple[tuple[str, str], ...]  # paths that could not be removed, and the reason
    skipped: tuple[Skipped, ...]
    skipped_sizes: dict[str, tuple[int, bool]]
    notes: tuple[str, ...]
    seconds: float
    entries: tuple[Entry, ...] = ()  # of the project, as the host has it (`manifest_hash`)
    suffix: str = ""  # of the target's name, beside the one that was asked for
    place: str = ""  # of a target that is the run's own copy: the project's folder

    def lines(self, host: str, *, removes: bool = True) -> list[str]:
        """Return the lines of output; `removes`: the command has the option `--delete`."""
        total = f"{quantity(self.files, 'file')}, {transfer_size(self.size)}"
        output = [f"{host}:{self.target} is up to date ({total})"]
        if self.sent or self.removed:
            how = f"{transfer_size(self.sent_size)} in {self.seconds:.1f} s"
            sent = f"{quantity(self.sent, 'file')} sent ({how}) of {total}"
            output = [f"synced {host}:{self.target}: {sent}"]
        if self.removed:
            output.append(f"removed on the host: {quantity(self.removed, 'file')}")
        if self.left:
            text = f"{quantity(self.left, 'file')} of earlier syncs remain on the host"
            output.append(text + ("; --delete removes them" if removes else ""))
        output += [f"not removed on the host: {path} {why}" for path, why in self.not_removed]
        secrets = [s.path for s in self.skipped if s.why == ignore.SENSITIVE]
        if secrets:
            how = "name them in `sync: {include: [...]}`" if removes else "push them by their names"
            names = transfer_progress.join_some(secrets)
            output.append(f"not sent, as secrets: {names}; if the job needs them, {how}")
        return output + self._skipped_lines() + [f"note: {clipped(note)}" for note in self.notes]

    def _skipped_lines(self) -> list[str]:
        others = [s for s in self.skipped if s.why != ignore.SENSITIVE]
        sized = [(s, *self.skipped_sizes[s.path]) for s in others if self.skipped_sizes]
        shown = [
            f"{printable(skipped.path)} ({'' if is_complete else 'more than '}"
            f"{transfer_size(size)}, {skipped.why})"
            for skipped, size, is_complete in sorted(sized, key=lambda s: -s[1])[:5]
            if size
        ]
        more = len(sized) - len(shown)
        text = ", ".join(shown) + (f" and {more} more" if more else "")
        return [f"not sent: {text}"] if shown else []


def start_push(
    agent: AgentCalls,
    project_root: str,
    target: str,
    rules: Rules | None = None,
    *,
    delete: bool = False,
    force: bool = False,
    cache: str | None = None,
    run_sync: RunSync | None = None,
    scan: ProjectScan | None = None,
) -> PendingPush:
    """Scan the project and request the state of the host, without waiting for the answer.

    `scan` is one under way, else a new one; `cache`: the folder of the hash cache. Raises
    ConfigError for a project that cannot be read, HostError.
    """
    scan = scan or ProjectScan(rules or Rules(project_root), cache)
    if not scan.is_done(agent.round_trip):
        # a project that large is worth a round trip: the host reads its side of it meanwhile
        agent.ask_first("receive.list_target", **_state_request(target, run_sync, force=force))
        agent.launch()
    options: dict[str, Any] = {"force": force, "delete": delete, "run_sync": run_sync}
    return PendingPush(agent, target, scan.result(), **options)


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
    hash_cache = file_hashes.HashCache(cache, path)
    if os.path.isdir(path):
        tree, folder = scan_tree(Rules(path, everything=True)), target
    else:
        tree, folder = _single_file(path, target)
    for item in tree.items.values():
        item.verbatim = True
    scanned = ScanResult(tree, hash_cache, tree_digest(tree, hash_cache))
    pending = PendingPush(agent, folder, scanned, force=force, destination=destination)
    summary = pending.finish(report=report, progress=progress, limit=None)
    # other files in the folder do not belong to this transfer
    return summary if os.path.isdir(path) else dataclasses.replace(summary, left=0)


def _state_request(target: str, run_sync: RunSync | None, *, force: bool) -> dict[str, Any]:
    """Return the words that open a folder on the host: those of a copy, without `run_sync`."""
    if run_sync is None:
        return {"target": target}
    return {"target": target, "owner": run_sync.owner, "force": force}


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


class PendingPush:
    """A sync that has sent its first request to the host."""

    def __init__(
        self,
        agent: AgentCalls,
        target: str,
        scanned: ScanResult,
        *,
        force: bool,
        delete: bool = False,
        destination: str = "`workdir`",
        run_sync: RunSync | None = None,
    ) -> None:
        """Request the state of the folder on the host.

        `destination` tells in hints how the user sets the target.
        """
        self.agent = agent
        self.target = target
        self.tree, self.cache, self.digest = scanned
        self.started = time.monotonic()
        self.force = force
        self.delete = delete
        self.destination = destination
        self.run_sync = run_sync
        self.suffix = self.place = ""
        self.methods: tuple[str, ...] = ()  # of compression that the host has, beside zlib
        self.confirmed = False
        self.pending = self._request_state(take_over=False)

    def finish(
        self,
        *,
        confirm: Callable[[str], bool] | None = None,
        report: Callable[[str], None] | None = None,
        progress: Callable[[TransferProgress], None] | None = None,
        limit: int | None = LIMIT,
    ) -> Summary:
        """Complete the sync once the host has answered.

        `confirm` is asked above `limit` bytes; without it that is refused. Raises Refused for that
        and for files that were changed on the host, HostError.
        """
        self.report = report or (lambda _: None)
        self.confirm, self.progress, self.limit = confirm, progress, limit
        try:
            return self._run()
        except HostError as e:
            raise self._with_hint(e) from e
        except Refused:
            self.agent.call("receive.release")
            raise
        finally:
            self.cache.save(self.tree.files)

    def _run(self) -> Summary:
        tree, run = self.tree, None if self.run_sync is None else self.run_sync.run
        rows, answer = self._compare()
        destination = str(answer["target"])
        self.suffix = self.suffix or str(answer["suffix"])
        self.methods = tuple(map(str, answer["compression"]))
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
            if manifest_hash(tree.items.values()) == answer["digest"] and not deleted:
                self.agent.call("receive.release", run=run)
                return self._summary(destination)
        if self.run_sync is not None and not self.place:
            touched = self._touched(changes, rows)
            living = self._living(self.run_sync, answer["living"]) if touched else []
            if living and self._needs_tree(living, touched, destination):
                return self._run()
        return self._send(changes, recorded, rows, destination)

    # -- state of the host

    def _request_state(self, *, take_over: bool) -> PendingAnswer:
        # a copy is the run's alone: it has no other owner
        owned = None if self.place else self.run_sync
        request = _state_request(self.target, owned, force=self.force)
        request |= {"digest": self.digest, "delete": self.delete, "take_over": take_over}
        if self.run_sync is not None:
            request["run"] = self.run_sync.run
        return self.agent.ask_first("receive.compare", **request)

    def _compare(self) -> tuple[dict[str, RemoteEntry], Any]:
        reported = False
        while True:
            count = len(self.tree.items)
            rows, answer = answers.read_rows(self.agent.host, self.pending.pieces(), count)
            with answers.checked(self.agent.host):
                if "busy" not in answer:
                    return {row[0]: RemoteEntry(*row) for row in rows}, answer
                is_stale = answer["busy"] > _STALE_SYNC
            if not reported:
                self.report(f"another sync of {self.target} is in progress: waiting for it")
                reported = True
            time.sleep(_POLL)
            self.pending = self._request_state(take_over=is_stale)

    def _check_unrecorded(self, rows: dict[str, RemoteEntry], *, fresh: bool) -> None:
        paths = [[i.path, i.size] for i in self.tree.items.values() if i.path not in rows]
        for batch in () if fresh else batches(paths, _STAT_ROWS):
            query = transfer_blocks.rows(batch)
            answer = self.agent.call("receive.stat_paths", data=[query])
            with answers.checked(self.agent.host):
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

    # -- runs that use the folder

    def _touched(self, changes: Difference, rows: dict[str, RemoteEntry]) -> list[str]:
        """Return the paths that a program there could find changed."""
        modes = [i for i in changes.adopted if i.kind == "f" and rows[i.path].mode != i.mode]
        items = [*changes.files, *changes.links, *modes, *changes.folders]
        deleted = [row.path for row in changes.deleted] if self.delete else []
        return [item.path for item in items] + deleted

    def _living(self, run_sync: RunSync, living: list[str]) -> list[str]:
        """Return the runs that use the folder, on all hosts that see it."""
        for agent, folder in run_sync.others:
            answer = agent.call("trees.living", folder=folder + self.suffix, but=run_sync.run)
            living = [*living, *answer["runs"]]
        return list(dict.fromkeys(living))

    def _needs_tree(self, living: list[str], touched: list[str], destination: str) -> bool:
        """Give the run a tree of its own; False to change the folder all the same.

        Raises Refused where there can be none, unless the user insists.
        """
        assert self.run_sync is not None  # noqa: S101 - for mypy
        runs = ", ".join(living[:3]) + (f" and {len(living) - 3} more" if len(living) > 3 else "")  # noqa: PLR2004
        reason = ""
        if not self.run_sync.is_shared:
            try:
                answer = self.agent.call("receive.branch", run=self.run_sync.run)
            except HostError as e:
                if getattr(e, "errno", None) not in _NO_SIBLING:
                    raise
                reason = f", and no copy can be made beside it: {e.message}"
            else:
                self.report(f"{self.agent.host}:{destination} is in use by {runs}: a copy is made")
                self.place, self.target = destination, str(answer["target"])
                self.tree.notes += [
                    f"{path}: too large to copy: a program that edits it in place changes it "
                    f"for {runs} too"
                    for path in answer["shared"]
                ]
                self.pending = self._request_state(take_over=False)
                return True
        if self.force:
            return False
        shown = ", ".join(map(printable, touched[:5]))
        more = f" and {len(touched) - 5} more" if len(touched) > 5 else ""  # noqa: PLR2004
        raise Refused(
            f"in use by {runs}, whose files this sync would change{reason}: {shown}{more}",
            where=f"{self.agent.host}:{destination}",
            hint="wait for its end (`safelaunch wait`), or stop it; --force changes them under it",
        )

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
            hint = "`--yes` sends them anyway; or " + hint
        raise Refused(question, where=self.tree.root, hint=hint)

    def _conflict(self, conflicts: list[tuple[str, str]]) -> Refused:
        shown = "; ".join(f"{printable(path)} {why}" for path, why in conflicts[:10])
        rest = conflicts[10:]
        more = f"; and {len(rest)} more" if rest else ""
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
        run = None if self.run_sync is None else self.run_sync.run
        sender = Sender(self.agent, meter, force=self.force, run=run, methods=self.methods)
        small = [item for item in changes.files if item.size <= file_hashes.LARGE]
        large = [item for item in changes.files if item.size > file_hashes.LARGE]
        removed = self._to_remove(changes, rows)
        left = [path for path in recorded if path not in self.tree.items]

        def finish() -> PackedBlock:
            for item in sender.lost:
                self.tree.items.pop(item.path, None)
            incomplete = sender.lost or sender.conflicts
            digest = "" if incomplete else manifest_hash(self.tree.items.values())
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
        local = os.path.join(self.tree.root, *path.split("/"))
        return not _blocks_path(path, self.tree) and os.path.lexists(local)

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
            entries=tuple(self.tree.items.values()),
            suffix=self.suffix,
            place=self.place,
        )

    def _with_hint(self, error: HostError) -> HostError:
        """Return an error of the host with a hint."""
        number, path = getattr(error, "errno", None), getattr(error, "path", None)
        where = f"{self.agent.host}:{path or self.target}"
        message = error.message.removesuffix(f" ({path})")
        if number in (errno.ENOSPC, errno.EDQUOT):
            hint = f"free space there, or choose another {self.destination}; sent files remain"
        elif number in (errno.EACCES, errno.EPERM, errno.EROFS):
            hint = f"choose a {self.destination} that you may write to"
        elif number in (errno.ENOTDIR, errno.EEXIST):
            message, hint = "not a folder", f"choose another {self.destination}"
        else:
            return error
        return HostError(message, where=where, hint=hint)


def _blocks_path(path: str, tree: Tree) -> bool:
    """Whether a local file or link occupies a parent folder of a path."""
    return any(tree.items[p].kind != "d" for p in diff.parents(path) if p in tree.items)
