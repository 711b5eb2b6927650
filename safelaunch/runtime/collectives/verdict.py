"""Says why a collective does not end, from what each rank waits in. Data in, data out.

desync     ranks of a group are in different collectives, or wait for each other
slow-rank  a rank has not come to the collective in which the others wait, and waits in none
stuck      all ranks are in the same collective, and it does not end
unknown    what the dumps show is not enough

Only what the dumps of all ranks of a group show is called by a name: of a run on several nodes
each node knows its own ranks, and `report` is called again with those of all.
"""

from __future__ import annotations

from safelaunch.runtime.records import Collective, CollectiveReport, RankCollectives
from safelaunch.runtime.units import name_ranks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Tuple

    from safelaunch.runtime.records import Failure

    GroupKey = Tuple[str, Tuple[int, ...]]  # its title, its members where they are recorded

TIMEOUT = "nccl-timeout"  # the class of a failure that the dumps explain
ARMED = "DUMP_ON_TIMEOUT"  # in the step of a remedy that the dumps themselves have made needless
DESYNC, SLOW, STUCK, UNKNOWN = "desync", "slow-rank", "stuck", "unknown"
# operations whose ranks may have tensors of different sizes
UNEVEN = ("all_to_all", "scatter", "gather", "all_gather", "reduce_scatter", "coalesced", "send",
          "recv", "_v", "_oop")  # fmt: skip
MAX_PLACES = 3  # places in which ranks are, of a sentence
DEFAULT_GROUPS = ("default_pg", "group 0")


class Wait:
    """What ranks wait for together: a collective of a group, or the other end of a send or recv."""

    def __init__(
        self, ranks: Mapping[int, Collective], missing: set[int], unrecorded: set[int], place: str
    ) -> None:
        self.ranks = ranks  # who waits, and in which call
        self.missing = missing  # ranks with a dump that have not come
        self.unrecorded = unrecorded  # ranks without a dump
        self.place = place  # `all_reduce 41 of default_pg`, `recv from rank 0`
        self.call = next(iter(ranks.values()))
        self.time = min(call.time or 0.0 for call in ranks.values())
        self.calls = dict(ranks)  # of a collective: what each rank called under its number
        self.complete: set[int] = set()  # ranks that have come and gone
        self.is_unclear = False  # both ends send, or both receive: a batch may do that rightly

    def __str__(self) -> str:
        verb = "wait" if len(self.ranks) > 1 else "waits"
        return f"{name_ranks(self.ranks)} {verb} in {self.place}{_at(self.call)}"

    def mismatch(self) -> list[list[int]]:
        """Return the ranks of each kind of operation, the most first; [] where all are alike."""
        kinds: dict[tuple[object, ...], list[int]] = {}
        for rank, row in sorted(self.calls.items()):
            kinds.setdefault(_kind(row), []).append(rank)
        return [] if len(kinds) < 2 else sorted(kinds.values(), key=len, reverse=True)  # noqa: PLR2004 - different ones


def _in_group(key: GroupKey, members: set[int], states: Mapping[int, RankCollectives]) -> Wait:
    """Return the first collective of a group in which a rank waits."""
    waits = {
        rank: call
        for rank in sorted(members & states.keys())
        for call in states[rank].waits
        if _key(call) == key and not call.is_p2p
    }
    number = min(call.number for call in waits.values())
    ranks = {rank: call for rank, call in waits.items() if call.number == number}
    last = {rank: _last(states[rank], key) for rank in members & states.keys()}
    missing = {rank for rank, row in last.items() if row is None or row.number < number}
    call = next(iter(ranks.values()))
    own = f" with {name_ranks(key[1])}" if key[1] and len(key[1]) < len(states) else ""
    place = f"{call.operation} {number} of {call.group}{own}"
    wait = Wait(ranks, missing, members - states.keys(), place)
    # a root of a broadcast may have gone on: what it called under the same number counts too
    for rank in waits.keys() - ranks.keys():
        earlier = (row for row in states[rank].earlier if _key(row) == key)
        wait.calls.update((rank, row) for row in earlier if row.number == number)
    wait.complete = members & states.keys() - missing - ranks.keys()
    return wait


def _of_pair(rank: int, call: Collective, states: Mapping[int, RankCollectives]) -> Wait:
    """Return a send or recv in which a rank waits for its peer."""
    peer = rank if call.peer is None else call.peer
    back = states[peer].waits if peer in states else ()
    has_come = peer == rank or any(other.peer == rank for other in back)
    missing = set() if has_come or peer not in states else {peer}
    place = f"{call.operation} {'to' if call.operation == 'send' else 'from'} rank {peer}"
    wait = Wait({rank: call}, missing, set() if peer in states else {peer}, place)
    wait.is_unclear = all(o.operation == call.operation for o in back if o.peer == rank)
    return wait


def _kind(wait: Collective) -> tuple[object, ...]:
    name = wait.operation
    is_uneven = any(name.startswith(word) or name.endswith(word) for word in UNEVEN)
    return (name,) if is_uneven else (name, wait.types, *wait.elements)


def _key(call: Collective) -> GroupKey:
    """Return what identifies a group: subgroups may have one name, with other members."""
    return call.group, tuple(call.members or ())


def _last(state: RankCollectives, key: GroupKey) -> Collective | None:
    return next((row for row in state.last if _key(row) == key), None)


def report(states: Mapping[str, RankCollectives]) -> CollectiveReport:
    """Return why the collectives of these ranks do not end; `what` is "" where none waits in one.

    The states are kept in any case: another node may have a rank that waits for one of these.
    """
    by_rank = {int(rank): state for rank, state in states.items()}
    waits = _waits(by_rank)
    if waits:
        verdict = _mismatch(waits) or _slow(waits, by_rank) or _rest(waits)
    else:
        verdict = CollectiveReport(rank=None, frame=None)
    verdict.ranks = dict(states)
    return verdict


def combine(reports: Iterable[CollectiveReport]) -> CollectiveReport:
    """Return the report of all nodes of a run."""
    states: dict[str, RankCollectives] = {}
    for own in reports:
        states.update(own.ranks)
    return report(states)


def explain(failure: Failure, verdict: CollectiveReport) -> None:
    """Add to the failure of a timeout why the collective did not end."""
    earlier = failure.collectives
    failure.collectives = verdict
    if failure.class_name != TIMEOUT or not verdict.what:
        return
    failure.why = f"{verdict.kind}: {verdict.what}"
    done = {earlier.advice} if earlier is not None else set()
    steps = [step for step in failure.remedy if step not in done and ARMED not in step]
    failure.advice, failure.remedy = verdict.advice, [verdict.advice, *steps]
    if failure.frame is None:
        failure.frame = verdict.frame


def _waits(states: Mapping[int, RankCollectives]) -> list[Wait]:
    """Return what ranks wait for, the oldest first."""
    members: dict[GroupKey, set[int]] = {}
    for rank, state in states.items():
        for call in (*state.waits, *state.last):
            own = members.setdefault(_key(call), set())
            own.add(rank)
            own.update(call.members or (states if call.group in DEFAULT_GROUPS else ()))
    calls = [(rank, call) for rank, state in sorted(states.items()) for call in state.waits]
    waiting = dict.fromkeys(_key(call) for _, call in calls if not call.is_p2p)
    waits = [_in_group(key, members[key], states) for key in waiting]
    waits += [_of_pair(rank, call, states) for rank, call in calls if call.is_p2p]
    return sorted(waits, key=lambda wait: (wait.time, wait.place))


def _mismatch(waits: Sequence[Wait]) -> CollectiveReport | None:
    for wait in waits:
        kinds = wait.mismatch()
        if not kinds:
            continue
        places = [_describe(wait, ranks) for ranks in kinds[:MAX_PLACES]]
        odd = wait.calls[kinds[-1][0]]
        single = len(kinds[-1]) == 1 and len(kinds[-1]) < len(kinds[0])
        where = f", here from {location(odd)}" if location(odd) else ""
        return CollectiveReport(
            kind=DESYNC,
            what=f"collective {odd.number} of {odd.group} differs: {'; '.join(places)}",
            rank=kinds[-1][0] if single else None,
            frame=odd.frame,
            advice="let all ranks call the same collectives in the same order, with tensors of the"
            f" same size: look why {name_ranks(kinds[-1])} came to another one{where}",
        )
    return None


def _describe(wait: Wait, ranks: Sequence[int]) -> str:
    call = wait.calls[ranks[0]]
    details = " ".join(part for part in (call.operation, call.sizes, call.types) if part)
    return f"{details} in {name_ranks(ranks)}{_at(call)}"


def _slow(waits: Sequence[Wait], states: Mapping[int, RankCollectives]) -> CollectiveReport | None:
    """Return the ranks that others wait for, and that wait for none."""
    for wait in waits:
        late = sorted(rank for rank in wait.missing if not states[rank].waits)
        if not late:
            continue
        newest = states[late[0]].newest if len(late) == 1 else None
        did = after = ""
        if newest is not None:
            number = "" if newest.is_p2p else f" {newest.number}"
            did = f"; its last one was {newest.operation}{number} of {newest.group}{_at(newest)}"
            after = f" after {location(newest)}" if location(newest) else ""
        return CollectiveReport(
            kind=SLOW,
            what=f"{name_ranks(late)} {'have' if len(late) > 1 else 'has'} not come: {wait}{did}",
            rank=late[0] if len(late) == 1 else None,
            frame=None,
            advice=f"look at what {name_ranks(late)} did{after}: fewer or longer batches than the"
            " others, a save or an evaluation on it alone, or stuck in its own code",
        )
    return None


def _rest(waits: Sequence[Wait]) -> CollectiveReport:
    """Return what is left to say where each rank that is missing waits itself, or is unknown."""
    unrecorded = sorted(set().union(*(wait.unrecorded for wait in waits)))
    if unrecorded:
        return CollectiveReport(
            kind=UNKNOWN,
            what=f"{waits[0]}; {name_ranks(unrecorded)} left no dump",
            rank=unrecorded[0] if len(unrecorded) == 1 else None,
            frame=None,
            advice=f"look at {name_ranks(unrecorded)} first: a rank that has ended, or whose"
            " interpreter is stuck, leaves no dump",
        )
    joined = [wait for wait in waits if not wait.missing]
    if joined:  # who is in one may only be late for the others
        return _joined(joined[0])
    return CollectiveReport(
        kind=DESYNC,
        what=f"ranks wait for each other: {'; '.join(map(str, waits[:MAX_PLACES]))}",
        rank=None,
        frame=None,
        advice="let all ranks call the operations of different groups in the same order",
    )


def _joined(wait: Wait) -> CollectiveReport:
    """Return why an operation to which all ranks have come does not end."""
    started = {rank for rank, call in wait.ranks.items() if call.state == "started"}
    idle = sorted(wait.ranks.keys() - started) if started else []
    if idle:
        return CollectiveReport(
            kind=SLOW,
            what=f"{wait}; the GPU of {name_ranks(idle)} has not begun it",
            rank=idle[0] if len(idle) == 1 else None,
            frame=None,
            advice=f"look at the kernels that {name_ranks(idle)} had started before it: the GPU is"
            " still busy with one, or stuck in it",
        )
    if wait.call.is_p2p and wait.is_unclear:
        return CollectiveReport(
            kind=UNKNOWN,
            what=f"ranks wait for each other: {wait}",
            rank=None,
            frame=None,
            advice="compare the order of the sends and receives of both ranks",
        )
    if wait.complete:
        return CollectiveReport(
            kind=UNKNOWN,
            what=f"{wait}, which is complete on {name_ranks(wait.complete)}",
            rank=None,
            frame=None,
            advice=f"look at the GPU and the stacks of {name_ranks(wait.ranks)}",
        )
    return CollectiveReport(
        kind=STUCK,
        what=f"all ranks have come to it, and it does not end: {wait}",
        rank=None,
        frame=None,
        advice="the data does not get through: look at the transports that NCCL chose (`show`), at"
        " links and GPUs (`nvidia-smi nvlink -s`, `ibstat`, dmesg), or at a kernel before it",
    )


def location(row: Collective) -> str:
    """Return `train.py:17`; "" where the dump has no stack."""
    frame = row.frame
    return "" if frame is None else f"{frame.file.rpartition('/')[2]}:{frame.line}"


def _at(row: Collective) -> str:
    place = location(row)
    return f" ({place})" if place else ""
