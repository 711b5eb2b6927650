"""What people are shown of the cards of a machine: who has which, and who waits."""

from __future__ import annotations

import os

from safelaunch.runtime.card_claims import ALL, claims, folder_path, users
from safelaunch.runtime.cards import inventory
from safelaunch.runtime.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from safelaunch.runtime.card_claims.claims import Claim
    from safelaunch.runtime.cards.inventory import MachineCard


class CardUser(Record):
    """Who has a card, or waits for some."""

    run: str = ""  # run id
    user: str = ""  # account on the machine
    is_own: bool = False  # whether that is who asks


class CardProcess(Record):
    """A process that computes on a card."""

    pid: int = 0  # process id
    name: str = ""  # its program
    user: str = ""  # account that it runs as; empty: it is not seen from here


class CardView(Record):
    """A card of a machine."""

    card: str = ""  # as a variable such as CUDA_VISIBLE_DEVICES names it
    key: str = ""  # its UUID, or kind and index
    kind: str = "cuda"  # cuda, rocm or npu
    name: str = ""  # its model, where the tools say it
    state: str = "free"  # free, reserved (by a run), or busy (without one)
    use: str = ""  # what else than a run uses it
    memory_used: float | None = None  # MiB
    memory: float | None = None  # MiB
    load: float | None = None  # percent
    runs: Sequence[CardUser] = ()  # runs that have it
    processes: Sequence[CardProcess] = ()  # processes that compute on it


class QueueView(Record):
    """A run in the queue of a machine."""

    place: int = 0  # place in the queue, from 1
    run: str = ""  # run id
    user: str = ""  # account on the machine
    is_own: bool = False  # whether that is who asks
    cards: int = 0  # how many it waits for
    priority: int = 0  # who has a higher one goes first
    since: float | None = None  # seconds since 1970


class MachineCards(Record):
    """The cards of a machine, and its queue."""

    cards: Sequence[CardView] = ()  # in the order of the driver
    queue: Sequence[QueueView] = ()  # in the order in which they go
    error: str = ""  # why the cards are not known

    def room(self, count: int) -> bool:
        """Whether a run that asks for so many cards would get them at once."""
        free = sum(card.state == "free" for card in self.cards)
        return not self.queue and free >= count


def look(environ: Mapping[str, str]) -> MachineCards:
    """Return the cards of this machine and its queue, as its tools and claims are now."""
    machine = inventory.look(environ)
    live = claims.live(folder_path(environ)) if os.name == "posix" else []
    owners = keys_of_owners(live, machine.cards)
    queue = [claim for claim in live if claim.file.is_waiting]
    return MachineCards(
        cards=[_card(card, owners.get(card.key, [])) for card in machine.cards],
        queue=[_waiter(place, claim) for place, claim in enumerate(queue, 1)],
        error=machine.error,
    )


def keys_of_owners(live: Iterable[Claim], cards: Sequence[MachineCard]) -> dict[str, list[Claim]]:
    """Return {key of a card: claims that have it}; a run without the queue names them by words."""
    owners: dict[str, list[Claim]] = {}
    for claim in live:
        if claim.file.is_waiting:
            continue
        record = claim.record
        keys = list(record.cards)
        if not keys:
            same = [card for card in cards if card.kind == record.kind]
            named = cards if ALL in record.words else inventory.matching(same, record.words)
            keys = [card.key for card in named]
        for key in keys:
            owners.setdefault(key, []).append(claim)
    return owners


def _card(card: MachineCard, owners: Sequence[Claim]) -> CardView:
    return CardView(
        card=card.word,
        key=card.key,
        kind=card.kind,
        name=card.name,
        state="reserved" if owners else "busy" if card.use else "free",
        use="" if owners else card.use,
        memory_used=card.used,
        memory=card.memory,
        load=card.load,
        runs=[_user(claim) for claim in owners],
        processes=[CardProcess(pid=p.pid, name=p.name, user=p.user) for p in card.processes],
    )


def _user(claim: Claim) -> CardUser:
    is_own = claim.uid == os.geteuid()
    return CardUser(run=claim.file.run, user=users.user_name(claim.uid), is_own=is_own)


def _waiter(place: int, claim: Claim) -> QueueView:
    user = _user(claim)
    return QueueView(
        place=place,
        run=user.run,
        user=user.user,
        is_own=user.is_own,
        cards=claim.record.count,
        priority=claim.file.priority,
        since=claim.record.since,
    )


def describe_owner(claim: Claim) -> str:
    """Return who has a card, for people: the run, and of another user also his name."""
    user = _user(claim)
    return user.run if user.is_own else f"{user.run} of {user.user}"
