"""Free cards of the machine, for a run in its queue.

A poll costs little while the folder of the claims stays as it is. The tools of the drivers, which
may take seconds, are asked only once the claims of others would let the run go.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

from safelaunch.runtime.card_claims import claims
from safelaunch.runtime.cards import inventory, report, turn
from safelaunch.runtime.preconditions import Precondition, PreconditionFailed
from safelaunch.runtime.records import CardClaim, CardRequest, Failure, RunRecord
from safelaunch.runtime.units import quantity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.runtime.card_claims.claims import Claim, ClaimFile, OwnClaim
    from safelaunch.runtime.cards.inventory import Inventory, MachineCard

CLASS = "cards"  # failure class of a run that can never have the cards that it waits for
PATIENCE = 0.1  # seconds for the lock of the folder
SWEEP = 1.5  # seconds between two looks for claims whose owners were killed
FRESH = 3.0  # seconds that an answer of the tools is good for
MAX_PAUSE = 5.0  # seconds between two looks at cards that programs without a claim use
SHOW = 2.0  # seconds between two changes of what is said
_TICK = 50_000_000  # nanoseconds by which the clock of a file system is coarse, and more
_FIRST_PAUSE = 0.25  # seconds before the second look at such cards
_QUICK = 0.25  # seconds that a poll waits for the tools
_TESTED = 20  # claims ahead that are looked at to say a place in the queue


def preconditions(run: RunRecord, node_dir: str, umask: int) -> list[FreeCards]:
    """Return the one of a run in the queue."""
    del umask
    return [] if run.queue is None else [FreeCards(run, run.queue, node_dir)]


class FreeCards(Precondition):
    """So many free cards, in the turn of the run."""

    PAUSE = 0.2

    def __init__(self, run: RunRecord, request: CardRequest, node_dir: str) -> None:
        self.run = run
        self.request = request
        self.dir = node_dir
        self.claim: OwnClaim | None = None
        self.tools = _Tools()
        self.wants = f"{quantity(request.count, 'free card')}"
        self._fits_since: float | None = None  # when the claims of others began to let it go
        self._look_pause = 0.0  # seconds between two looks
        self._looks = 0  # at cards that programs without a claim use
        self._stamp = 0  # mtime of the folder as it was read; 0: read it again
        self._read_at = 0.0
        self._text = ""
        self._shown_at = 0.0
        self._words: list[str] = []
        self._own_count = request.count - sum(service.queued for service in run.services)

    def subject(self) -> str:
        """Return how many cards it waits for."""
        return self.wants

    def poll(self) -> str:
        """Return which cards it waits for, and who has them; "" once it has them."""
        try:
            self._join()
            machine = self.tools.newest()
            if machine is None or machine.error:
                return self._without_tools(machine)
            for _ in range(2):
                if not self._has_changed():
                    break
                if self._try(machine):
                    return ""
                if self._fits_since is None or not self.tools.wait(_QUICK):
                    break
                machine = self.tools.newest() or machine
        except claims.FolderBusyError:
            self._stamp = 0
        return self._text or self.wants

    def values(self) -> Mapping[str, str]:
        """Return the cards, as a variable such as CUDA_VISIBLE_DEVICES names them."""
        return {"cards": ",".join(self._words[: self._own_count])}

    def close(self) -> None:
        """Give the cards, or the place in the queue, to the next one."""
        if self.claim is not None:
            self.claim.close()
        self.tools.end()

    # -- the machine -----------------------------------------------------------------------------

    def _without_tools(self, machine: Inventory | None) -> str:
        """Return that the cards are not known yet, and ask for them. Raises PreconditionFailed."""
        if machine is not None and machine.is_without:
            raise self._failed(f"it waits for {self.wants}, but {machine.error}")
        self.tools.start(0.0 if machine is None else FRESH)
        if self.tools.wait(_QUICK):
            self._stamp = 0
        return f"{self.wants}: {machine.error if machine else 'the driver is asked for them'}"

    def _failed(self, what: str) -> PreconditionFailed:
        advice = "`safelaunch gpus` shows the cards of a machine; ask for fewer, or on another one"
        return PreconditionFailed(
            Failure(version=1, class_name=CLASS, role="root", what=what, advice=advice)
        )

    def _usable(self, machine: Inventory) -> list[MachineCard]:
        """Return the cards that the run may use. Raises PreconditionFailed for too few."""
        visible = inventory.visible(machine.cards, self.request.environ)
        if len(visible) >= self.request.count:
            return visible
        what = f"this machine has {quantity(len(machine.cards), 'card')}"
        if len(visible) < len(machine.cards):
            names = ", ".join(self.request.environ)
            what = f"{names} of the environment that it was started in leaves it {len(visible)}"
        raise self._failed(f"it waits for {self.wants}, but {what}")

    # -- the queue -------------------------------------------------------------------------------

    def _join(self) -> None:
        """Take a place in the queue, unless it has one. Raises OSError."""
        path = self.request.folder
        if self.claim is not None:
            with claims.open_folder(path) as folder:
                if self.claim.is_there(folder):
                    return
            self.claim.close()  # somebody has removed the file
            self.claim = None
        record = CardClaim(
            run=self.run.id,
            node=self.run.node,
            pid=os.getpid(),
            kind=self.request.kind,
            count=self.request.count,
            since=time.time(),
        )
        with claims.locked_folder(path, PATIENCE) as folder:
            self.claim = claims.create(path, folder, record, self.request.priority, is_waiting=True)
        self._stamp = 0

    def _has_changed(self) -> bool:
        """Whether the claims may be others than at the last look."""
        if self._fits_since is not None or time.monotonic() - self._read_at > SWEEP:
            return True
        return os.stat(self.request.folder).st_mtime_ns != self._stamp

    def _try(self, machine: Inventory) -> bool:
        """Take the cards where it is the run's turn. Raises PreconditionFailed, OSError.

        The folder is locked only by who is about to take some: of many in the queue that is one.
        """
        usable, path = self._usable(machine), self.request.folder
        demand = turn.Demand(self.request.count, frozenset(card.key for card in usable))
        with claims.open_folder(path) as folder:
            self._note_state(folder)
            queue = _Queue(folder, self._own(), machine)
            if not self._select(queue, demand, machine):
                self._note_usable(usable, machine)
                self._say(machine, queue, demand)
                return False
        with claims.locked_folder(path, PATIENCE) as folder:
            selected = self._select(_Queue(folder, self._own(), machine), demand, machine)
            if selected:
                self._take(folder, [card for card in usable if card.key in selected])
        return bool(selected)

    def _own(self) -> OwnClaim:
        if self.claim is None:
            raise TypeError("it has no place in the queue")
        return self.claim

    def _select(self, queue: _Queue, demand: turn.Demand, machine: Inventory) -> list[str] | None:
        """Return the cards that it takes now; None where it waits for others, or for the tools."""
        unclaimed = [card for card in machine.cards if card.key not in queue.owners]
        if turn.choose([card.key for card in unclaimed], queue.ahead(), demand) is None:
            self._fits_since, self._looks, self._look_pause = None, 0, 0.0
            return None
        now = time.monotonic()
        if self._fits_since is None:
            self._fits_since = now
        if machine.began < self._fits_since or now - machine.began > FRESH:
            self.tools.start(self._look_pause)
            return None
        idle = [card.key for card in unclaimed if not card.use]
        selected = turn.choose(idle, queue.ahead(), demand)
        if selected is None:  # programs without a claim use them
            self._fits_since = now
            # soon at first: what a driver says of a card lags behind the end of a process
            longest = min(max(1.0, 2 * machine.seconds), MAX_PAUSE)
            self._look_pause = min(_FIRST_PAUSE * 2**self._looks, longest)
            self._looks = min(self._looks + 1, 10)
        return selected

    def _note_usable(self, usable: Sequence[MachineCard], machine: Inventory) -> None:
        """Say in the claim which cards it may use, so that others leave it only those."""
        own = self._own()
        if own.record.allowed is None and len(usable) < len(machine.cards):
            own.record.allowed = sorted(card.key for card in usable)
            own.write()

    def _take(self, folder: int, cards: Sequence[MachineCard]) -> None:
        self._words = inventory.words(cards, self.request.environ)
        self._own().assign(folder, [card.key for card in cards], [card.word for card in cards])
        self.run.gpus = [card.word for card in cards[: self._own_count]]
        at = self._own_count
        for service in self.run.services:
            service.gpus, at = self._words[at : at + service.queued], at + service.queued
        with contextlib.suppress(OSError):  # on a full disk `show` does without
            self.run.write(self.dir)

    def _note_state(self, folder: int) -> None:
        """Note how the folder is before it is read, unless it may change again unseen."""
        stamp = os.fstat(folder).st_mtime_ns
        self._stamp = stamp if time.time_ns() - stamp > _TICK else 0
        self._read_at = time.monotonic()

    def _say(self, machine: Inventory, queue: _Queue, demand: turn.Demand) -> None:
        """Say what it waits for, and who has it, but not with each change of the queue."""
        now = time.monotonic()
        if self._text and now - self._shown_at < SHOW:
            return
        self._shown_at = now
        place = queue.count_ahead() + 1
        uses = []
        for card in machine.cards:
            who = [report.describe_owner(claim) for claim in queue.owners.get(card.key, ())]
            use = " and ".join(who) or card.use
            if card.key in demand.cards and use:
                uses.append((card.word, use))
        by_use: dict[str, list[str]] = {}
        for word, use in uses:
            by_use.setdefault(use, []).append(word)
        parts = [f"{use} has {', '.join(words)}" for use, words in by_use.items()]
        self._text = "; ".join([f"{self.wants} (place {place})", *parts])


class _Queue:
    """Who has cards, and the runs before one, opened one after another as they are asked for."""

    def __init__(self, folder: int, own: OwnClaim, machine: Inventory) -> None:
        self._folder = folder
        self._everything = frozenset(card.key for card in machine.cards)
        self._claims: dict[str, Claim | None] = {}
        files = claims.files(folder)
        self._ahead = [file for file in files if file.is_waiting and file.name < own.name]
        have = [self._read(file) for file in files if not file.is_waiting]
        self.owners = report.keys_of_owners([c for c in have if c is not None], machine.cards)

    def ahead(self) -> Iterator[turn.Demand]:
        """Yield what the runs before it wait for, in their order."""
        for file in self._ahead:
            claim = self._read(file)
            if claim is not None:
                allowed = claim.record.allowed
                cards = self._everything if allowed is None else frozenset(allowed)
                yield turn.Demand(claim.record.count, cards)

    def count_ahead(self) -> int:
        """Return how many they are; of many, those behind the first count as living."""
        return sum(
            place >= _TESTED or self._read(file) is not None
            for place, file in enumerate(self._ahead)
        )

    def _read(self, file: ClaimFile) -> Claim | None:
        if file.name not in self._claims:
            self._claims[file.name] = claims.read(self._folder, file, sweep=True)
        return self._claims[file.name]


class _Tools:
    """Asks the tools of the drivers beside the supervisor's loop: they may hang in the kernel."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._answers: list[Inventory] = []
        self._asked_at = 0.0

    def start(self, pause: float) -> None:
        """Ask, unless that is under way, or the last time is less than `pause` seconds ago."""
        now = time.monotonic()
        if self._thread is None and now - self._asked_at >= pause:
            self._asked_at = now
            self._thread = threading.Thread(target=self._ask, daemon=True)
            self._thread.start()

    def _ask(self) -> None:
        self._answers = [inventory.look(os.environ)]

    def wait(self, seconds: float) -> bool:
        """Wait for an answer that is under way; whether one has come."""
        if self._thread is None:
            return False
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def newest(self) -> Inventory | None:
        """Return the newest answer."""
        if self._thread is not None and not self._thread.is_alive():
            self._thread = None
        return self._answers[-1] if self._answers else None

    def end(self) -> None:
        """End what was asked."""
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(1.0)  # a tool that hangs is killed at its own limit, or outlives us
