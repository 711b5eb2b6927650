"""Why a collective does not end, by what the dumps of the ranks show."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
from support.flight_dumps import WORLD, Recorder, recorders

from safelaunch.runtime.collectives import dumps, verdict
from safelaunch.runtime.failure import log_tails

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from safelaunch.runtime.records import CollectiveReport, RankCollectives, StackFrame

TENSOR, DATA = ("1", "tensor"), ("2", "data")


def own_frame(frames: Sequence[StackFrame]) -> StackFrame | None:
    return log_tails.user_frame(frames, ["/home/me/proj"])


def states(folder: Path, ranks: Iterable[Recorder]) -> dict[str, RankCollectives]:
    for rank in ranks:
        rank.write(folder)
    return dumps.read_all(dumps.paths(str(folder)), own_frame)


def judge(folder: Path, ranks: Iterable[Recorder]) -> CollectiveReport:
    return verdict.report(states(folder, ranks))


def test_a_rank_that_did_not_come_is_named_with_its_last_operation(tmp_path: Path) -> None:
    ranks = [rank.call(line=9) for rank in recorders(4)]
    for rank in (0, 1, 3):
        ranks[rank].waits()
    report = judge(tmp_path, ranks)
    assert (report.kind, report.rank) == ("slow-rank", 2)
    assert report.what == (
        "rank 2 has not come: ranks 0-1, 3 wait in all_reduce 2 of default_pg (train.py:17); its "
        "last one was all_reduce 1 of default_pg (train.py:9)"
    )


def test_a_rank_that_never_called_one_is_named(tmp_path: Path) -> None:
    ranks = recorders(2)
    ranks[0].waits()
    report = judge(tmp_path, ranks)
    assert (report.kind, report.rank) == ("slow-rank", 1)


def test_several_late_ranks_are_all_named_and_none_is_blamed_alone(tmp_path: Path) -> None:
    ranks = [rank.call() for rank in recorders(4)]
    ranks[0].waits()
    report = judge(tmp_path, ranks)
    assert (report.kind, report.rank) == ("slow-rank", None)
    assert report.what.startswith("ranks 1-3 have not come: rank 0 waits in all_reduce 2")


def test_another_operation_under_the_same_number_is_a_desync(tmp_path: Path) -> None:
    ranks = recorders(3)
    ranks[1].waits("broadcast", sizes=(7,), line=21)
    for rank in (0, 2):
        ranks[rank].waits()
    report = judge(tmp_path, ranks)
    assert (report.kind, report.rank) == ("desync", 1)
    assert report.frame is not None
    assert report.frame.line == 21
    assert report.what == (
        "collective 1 of default_pg differs: all_reduce [16, 4] Float in ranks 0, 2 (train.py:17);"
        " broadcast [7] Float in rank 1 (train.py:21)"
    )


def test_another_size_under_the_same_number_is_a_desync(tmp_path: Path) -> None:
    ranks = recorders(2)
    ranks[0].waits(sizes=(16,))
    ranks[1].waits(sizes=(17,))
    report = judge(tmp_path, ranks)
    assert (report.kind, report.rank) == ("desync", None)


def test_a_root_that_has_gone_on_from_its_broadcast_is_in_the_desync(tmp_path: Path) -> None:
    ranks = recorders(2)
    ranks[0].call("broadcast", line=30).waits(line=31)
    ranks[1].waits()
    report = judge(tmp_path, ranks)
    assert report.kind == "desync"
    assert "broadcast [16, 4] Float in rank 0 (train.py:30)" in report.what


@pytest.mark.parametrize("operation", ["all_to_all", "gather", "scatter", "all_gather"])
def test_operations_of_uneven_sizes_are_no_desync(tmp_path: Path, operation: str) -> None:
    ranks = recorders(2)
    ranks[0].waits(operation, sizes=(16,))
    ranks[1].waits(operation, sizes=(17,))
    assert judge(tmp_path, ranks).kind == "stuck"


def test_the_same_number_of_elements_in_another_shape_is_no_desync(tmp_path: Path) -> None:
    ranks = recorders(2)
    ranks[0].waits(sizes=(2, 8))
    ranks[1].waits(sizes=(16,))
    assert judge(tmp_path, ranks).kind == "stuck"


def test_a_collective_that_all_ranks_are_in_is_stuck(tmp_path: Path) -> None:
    report = judge(tmp_path, [rank.waits() for rank in recorders(2)])
    assert (report.kind, report.rank) == ("stuck", None)


def test_a_gpu_that_has_not_begun_is_named_where_start_times_are_recorded(tmp_path: Path) -> None:
    ranks = recorders(3)
    for rank in (0, 1):
        ranks[rank].waits(state="started")
    ranks[2].waits()
    report = judge(tmp_path, ranks)
    assert (report.kind, report.rank) == ("slow-rank", 2)


def test_a_rank_that_waits_in_another_group_is_not_the_slow_one(tmp_path: Path) -> None:
    ranks = recorders(4, tensor=(0, 1), data=(1, 2))
    ranks[0].waits(group=TENSOR)  # waits for 1, which waits for 2
    ranks[1].waits(group=DATA)
    ranks[2].call()
    report = judge(tmp_path, ranks[:3])
    assert (report.kind, report.rank) == ("slow-rank", 2)


def test_ranks_that_wait_for_each_other_in_two_groups_are_a_desync(tmp_path: Path) -> None:
    ranks = recorders(2, tensor=(0, 1), data=(0, 1))
    ranks[0].waits(group=TENSOR)
    ranks[1].waits(group=DATA)
    report = judge(tmp_path, ranks)
    assert (report.kind, report.rank) == ("desync", None)
    assert "rank 0 waits in all_reduce 1 of tensor (1)" in report.what


def test_who_is_in_a_collective_that_all_have_joined_is_not_late_for_the_next(
    tmp_path: Path,
) -> None:
    ranks = recorders(3, tensor=(0, 1))
    for rank in (0, 1):
        ranks[rank].waits(group=TENSOR)
    ranks[2].waits()
    report = judge(tmp_path, ranks)
    assert report.kind == "stuck"
    assert "tensor (1)" in report.what


def test_without_the_dump_of_a_rank_nothing_is_claimed(tmp_path: Path) -> None:
    ranks = [rank.waits() for rank in recorders(3)]
    report = judge(tmp_path, ranks[:2])
    assert (report.kind, report.rank) == ("unknown", 2)
    assert report.what.endswith("; rank 2 left no dump")


def test_the_dumps_of_all_nodes_together_name_the_slow_rank(tmp_path: Path) -> None:
    ranks = [rank.call() for rank in recorders(4)]
    for rank in (0, 1, 2):
        ranks[rank].waits()
    first = judge(tmp_path / "0", ranks[:2])
    second = judge(tmp_path / "1", ranks[2:])
    assert first.kind == "unknown"
    combined = verdict.combine([first, second])
    assert (combined.kind, combined.rank) == ("slow-rank", 3)


def test_a_node_whose_ranks_wait_in_nothing_claims_nothing(tmp_path: Path) -> None:
    report = judge(tmp_path, [rank.call() for rank in recorders(2)])
    assert (report.what, list(report.ranks)) == ("", ["0", "1"])


def test_parts_of_a_coalesced_operation_do_not_count_as_waits(tmp_path: Path) -> None:
    ranks = recorders(2)
    for rank in ranks:
        rank.waits("all_gather_into_tensor_coalesced").call("coalesced")
    assert not judge(tmp_path, ranks).what


def test_a_peer_that_does_not_answer_is_named(tmp_path: Path) -> None:
    ranks = recorders(2)
    ranks[1].waits("recv 1<-0", line=40)
    ranks[0].call()
    report = judge(tmp_path, ranks)
    assert (report.kind, report.rank) == ("slow-rank", 0)
    assert report.what == (
        "rank 0 has not come: rank 1 waits in recv from rank 0 (train.py:40); its last one was "
        "all_reduce 1 of default_pg (train.py:17)"
    )


def test_who_waits_for_a_peer_is_not_the_slow_one(tmp_path: Path) -> None:
    ranks = recorders(3, tensor=(0, 1))
    ranks[0].waits(group=TENSOR)  # waits for 1, which waits for 2
    ranks[1].waits("recv 1<-2")
    ranks[2].call()
    report = judge(tmp_path, ranks)
    assert (report.kind, report.rank) == ("slow-rank", 2)


def test_a_send_and_its_recv_that_do_not_end_are_stuck(tmp_path: Path) -> None:
    ranks = recorders(2)
    ranks[0].waits("send 0->1")
    ranks[1].waits("recv 1<-0")
    assert judge(tmp_path, ranks).kind == "stuck"


def test_of_two_ranks_that_both_receive_none_is_blamed(
    tmp_path: Path,
) -> None:
    ranks = recorders(2)
    ranks[0].waits("recv 0<-1")
    ranks[1].waits("recv 1<-0")
    report = judge(tmp_path, ranks)
    assert (report.kind, report.rank) == ("unknown", None)


def test_a_send_does_not_count_among_the_collectives_of_its_group(tmp_path: Path) -> None:
    ranks = recorders(2)
    for rank in ranks:
        for _ in range(3):
            rank.call()
    ranks[0].waits()
    ranks[1].waits().call("send 1->0")  # its own number is 1
    assert judge(tmp_path, ranks).kind == "stuck"


def test_groups_of_one_name_with_other_members_are_different_groups(tmp_path: Path) -> None:
    ranks = [
        Recorder(rank, {WORLD: range(4), TENSOR: range(2) if rank < 2 else range(2, 4)})
        for rank in range(4)
    ]
    for rank in ranks:
        rank.call(group=TENSOR)
    ranks[0].waits(group=TENSOR)
    report = judge(tmp_path, ranks)
    assert (report.kind, report.rank) == ("slow-rank", 1)
    assert "all_reduce 2 of tensor (1) with ranks 0-1" in report.what


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x02",
        b"no pickle",
        pickle.dumps([1, 2]),
        pickle.dumps({"entries": None}),
        pickle.dumps({"entries": [{"frames": [{}]}]}),
        b"cos\nsystem\n(S'false'\ntR.",
    ],
    ids=["empty", "cut", "text", "list", "null", "odd-entry", "code"],
)
def test_what_is_no_dump_is_left_out(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "flight-0").write_bytes(data)
    assert states(tmp_path, []) == {}


def test_a_dump_of_an_earlier_start_of_the_ranks_does_not_count(tmp_path: Path) -> None:
    import os  # noqa: PLC0415 - of this test alone

    for rank in recorders(2):
        rank.waits().write(tmp_path)
    os.utime(tmp_path / "flight-0", (1_000_000, 1_000_000))
    assert list(dumps.paths(str(tmp_path))) == [1]


def test_a_dump_of_the_first_format_is_read(tmp_path: Path) -> None:
    rank = Recorder(0, {WORLD: (0, 1)}).waits()
    for entry in rank.entries:  # torch 2.2: a list, and one number for all kinds
        entry["seq_id"] = entry.pop("collective_seq_id")
        del entry["process_group"], entry["is_p2p"]
    (tmp_path / "flight-0").write_bytes(pickle.dumps(rank.entries, 2))
    (state,) = states(tmp_path, []).values()
    assert [(wait.group, wait.number) for wait in state.waits] == [("group 0", 1)]
