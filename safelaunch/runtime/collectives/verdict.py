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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from safelaunch.runtime.records import Failure

TIMEOUT = "nccl-timeout"  # the class of a failure that the dumps explain
DESYNC, SLOW, STUCK, UNKNOWN = "desync", "slow-rank", "stuck", "unknown"
# operations whose ranks may have tensors of different sizes
UNEVEN = ("all_to_all", "scatter", "gather", "all_gather", "reduce_scatter", "coalesced", "send",
          "recv", "_v", "_oop")  # fmt: skip
MAX_PLACES = 3  # places in which ranks are, of a sentence
DEFAULT_GROUPS = ("default_pg", "group 0")


class GroupWait:
    """A process group in which a rank waits: for which collective, and who is in it."""

    def __init__(
        self, group: str, members: set[int], states: Mapping[int, RankCollectives]
    ) -> None:
        self.group = group
        self.members = members
        waits = {
            rank: wait
            for rank in members & states.keys()
            for wait in states[rank].waits
            if wait.group == group and wait.peer is None
        }
        self.number = min((wait.number for wait in waits.values()), default=0)
        self.waits = {rank: wait for rank, wait in waits.items() if wait.number == self.number}
        # a root of a broadcast may have gone on: what it called under the same number counts too
        self.calls = dict(self.waits)
        for rank in waits.keys() - self.waits.keys():
            earlier = (row for row in states[rank].earlier if row.group == group)
            self.calls.update((rank, row) for row in earlier if row.number == self.number)
        last = {rank: _last(states[rank], group) for rank in members & states.keys()}
        self.missing = {
            rank for rank, row in last.items() if row is None or row.number < self.number
        }
        self.unrecorded = members - states.keys()
        self.time = min((wait.time or 0.0 for wait in self.waits.values()), default=0.0)

    @property
    def title(self) -> str:
        """Return `all_reduce 41 of default_pg`."""
        operation = next(iter(self.waits.values())).operation
        return f"{operation} {self.number} of {self.group}"

    def mismatch(self) -> list[list[int]]:
        """Return the ranks of each kind of operation, the most first; [] where all are alike."""
        kinds: dict[tuple[object, ...], list[int]] = {}
        for rank, row in sorted(self.calls.items()):
            kinds.setdefault(_kind(row), []).append(rank)
        return [] if len(kinds) < 2 else sorted(kinds.values(), key=len, reverse=True)  # noqa: PLR2004 - different ones


def _kind(wait: Collective) -> tuple[object, ...]:
    name = wait.operation
    is_uneven = any(name.startswith(word) or name.endswith(word) for word in UNEVEN)
    return (name,) if is_uneven else (name, wait.types, *wait.elements)


def _last(state: RankCollectives, group: str) -> Collective | None:
    return next((row for row in state.last if row.group == group), None)


def report(states: Mapping[str, RankCollectives]) -> CollectiveReport:
    """Return why the collectives of these ranks do not end; `what` is "" where none waits in one.

    The states are kept in any case: another node may have a rank that waits for one of these.
    """
    by_rank = {int(rank): state for rank, state in states.items()}
    groups = _groups(by_rank)
    if groups:
        verdict = _mismatch(groups) or _slow(groups, by_rank) or _rest(groups)
    else:
        verdict = _of_pairs(by_rank) or CollectiveReport(rank=None, frame=None)
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
    steps = [step for step in failure.remedy if earlier is None or step != earlier.advice]
    failure.advice, failure.remedy = verdict.advice, [verdict.advice, *steps]
    if failure.frame is None:
        failure.frame = verdict.frame


def _groups(states: Mapping[int, RankCollectives]) -> list[GroupWait]:
    """Return the groups in which ranks wait for a collective, the oldest wait first."""
    members: dict[str, set[int]] = {}
    for rank, state in states.items():
        for row in (*state.waits, *state.last):
            own = members.setdefault(row.group, set())
            own.add(rank)
            own.update(row.members or (states if row.group in DEFAULT_GROUPS else ()))
    waiting = {wait.group for s in states.values() for wait in s.waits if wait.peer is None}
    groups = [GroupWait(group, members[group], states) for group in waiting]
    return sorted(groups, key=lambda group: (group.time, group.group))


def _mismatch(groups: Sequence[GroupWait]) -> CollectiveReport | None:
    for group in groups:
        kinds = group.mismatch()
        if not kinds:
            continue
        places = [_place(group, ranks) for ranks in kinds[:MAX_PLACES]]
        odd = group.calls[kinds[-1][0]]
        single = len(kinds[-1]) == 1 and len(kinds[-1]) < len(kinds[0])
        where = f", here from {location(odd)}" if location(odd) else ""
        return CollectiveReport(
            kind=DESYNC,
            what=f"collective {group.number} of {group.group} differs: {'; '.join(places)}",
            rank=kinds[-1][0] if single else None,
            frame=odd.frame,
            advice="let all ranks call the same collectives in the same order, with tensors of the"
            f" same size: look why {name_ranks(kinds[-1])} came to another one{where}",
        )
    return None


def _place(group: GroupWait, ranks: Sequence[int]) -> str:
    wait = group.calls[ranks[0]]
    details = " ".join(part for part in (wait.operation, wait.sizes, wait.types) if part)
    return f"{details} in {name_ranks(ranks)}{_at(wait)}"


def _slow(
    groups: Sequence[GroupWait], states: Mapping[int, RankCollectives]
) -> CollectiveReport | None:
    """Return the ranks that others wait for, and that wait for none."""
    for group in groups:
        free = sorted(rank for rank in group.missing if not states[rank].waits)
        if not free:
            continue
        last = states[free[0]].newest
        did = (
            f"; its last one was {last.operation} {last.number} of {last.group}{_at(last)}"
            if last is not None and len(free) == 1
            else ""
        )
        verb = "have" if len(free) > 1 else "has"
        what = f"{name_ranks(free)} {verb} not come to {group.title}, in which "
        what += f"{name_ranks(group.waits)} {'wait' if len(group.waits) > 1 else 'waits'}"
        what += f"{_at(next(iter(group.waits.values())))}{did}"
        after = f" after {location(last)}" if last is not None and location(last) else ""
        return CollectiveReport(
            kind=SLOW,
            what=what,
            rank=free[0] if len(free) == 1 else None,
            frame=None,
            advice=f"look at what {name_ranks(free)} did{after}: fewer or longer batches than the"
            " others, a save or an evaluation on it alone, or stuck in its own code",
        )
    return None


def _rest(groups: Sequence[GroupWait]) -> CollectiveReport:
    """Return what is left to say where no rank is the only one that is late."""
    unrecorded = sorted(set().union(*(group.unrecorded for group in groups)))
    if unrecorded:
        return CollectiveReport(
            kind=UNKNOWN,
            what=f"{_waiting(groups[0])}; {name_ranks(unrecorded)} left no dump",
            rank=unrecorded[0] if len(unrecorded) == 1 else None,
            frame=None,
            advice=f"look at {name_ranks(unrecorded)} first: a rank that has ended, or whose"
            " interpreter is stuck, leaves no dump",
        )
    full = [group for group in groups if not group.missing]
    crossing = [group for group in groups if group.missing]
    # who is in a collective that all have joined may only be late for the next one
    in_full = {rank for group in full for rank in group.waits}
    if any(not group.missing <= in_full for group in crossing):
        places = "; ".join(_waiting(group) for group in crossing[:MAX_PLACES])
        return CollectiveReport(
            kind=DESYNC,
            what=f"ranks wait for each other in different groups: {places}",
            rank=None,
            frame=None,
            advice="let all ranks call the collectives of different groups in the same order",
        )
    return _joined(full[0])


def _joined(group: GroupWait) -> CollectiveReport:
    """Return why a collective that all ranks have joined does not end."""
    started = {rank for rank, wait in group.waits.items() if wait.state == "started"}
    idle = sorted(group.waits.keys() - started) if started else []
    if idle:
        return CollectiveReport(
            kind=SLOW,
            what=f"{_waiting(group)}; the GPU of {name_ranks(idle)} has not begun it",
            rank=idle[0] if len(idle) == 1 else None,
            frame=None,
            advice=f"look at the kernels that {name_ranks(idle)} had started before it: the GPU is"
            " still busy with one, or stuck in it",
        )
    complete = sorted(group.members - group.waits.keys())
    if complete:
        return CollectiveReport(
            kind=UNKNOWN,
            what=f"{_waiting(group)}, which is complete on {name_ranks(complete)}",
            rank=None,
            frame=None,
            advice=f"look at the GPU and the stacks of {name_ranks(group.waits)}",
        )
    return CollectiveReport(
        kind=STUCK,
        what=f"all ranks have come to it, and it does not end: {_waiting(group)}",
        rank=None,
        frame=None,
        advice="the data does not get through: look at the transports that NCCL chose (`show`), at"
        " links and GPUs (`nvidia-smi nvlink -s`, `ibstat`, dmesg), or at a kernel before it",
    )


def _waiting(group: GroupWait) -> str:
    """Return `ranks 0, 2 wait in all_reduce 41 of default_pg (train.py:17)`."""
    wait = next(iter(group.waits.values()))
    verb = "wait" if len(group.waits) > 1 else "waits"
    return f"{name_ranks(group.waits)} {verb} in {group.title}{_at(wait)}"


def _of_pairs(states: Mapping[int, RankCollectives]) -> CollectiveReport | None:
    """Return which rank does not answer a send or recv; None where no rank waits in one."""
    waits = {rank: wait for rank, s in sorted(states.items()) for wait in s.waits[:1]}
    for rank, wait in waits.items():
        peer = wait.peer
        if peer is None or peer in waits:
            continue
        to = "to" if wait.operation == "send" else "from"
        what = f"rank {rank} waits in {wait.operation} {to} rank {peer}{_at(wait)}"
        is_recorded = peer in states
        return CollectiveReport(
            kind=SLOW if is_recorded else UNKNOWN,
            what=f"{what}, which {'waits in nothing' if is_recorded else 'left no dump'}",
            rank=peer,
            frame=None,
            advice=f"look at what rank {peer} did: it has not answered",
        )
    return None


def location(row: Collective) -> str:
    """Return `train.py:17`; "" where the dump has no stack."""
    frame = row.frame
    return "" if frame is None else f"{frame.file.rpartition('/')[2]}:{frame.line}"


def _at(row: Collective) -> str:
    place = location(row)
    return f" ({place})" if place else ""


def name_ranks(ranks: Iterable[int]) -> str:
    """Return `rank 1`, or `ranks 0, 2-5`."""
    numbers = sorted(ranks)
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    words = ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
    return f"rank{'s' if len(numbers) > 1 else ''} {words}"
