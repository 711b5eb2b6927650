"""What NCCL and RCCL wrote about their start, in recorded logs."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from support import DATA

from safelaunch.runtime.collectives import nccl_log
from safelaunch.runtime.collectives.nccl_log import NcclFile, NcclWatch

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.runtime.records import NcclReport

RECORDS = [json.loads(line) for line in (DATA / "nccl" / "records.jsonl").read_text().splitlines()]
STARTED = "h:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 4 cudaDev 0 - Init START\n"
COMPLETE = STARTED.replace("START", "COMPLETE")
VERSION = "h:1:2 [0] NCCL INFO NCCL version 2.27.3+cuda12.9\n"


def channel(sender: int, receiver: int, via: str) -> str:
    pair = f"{sender}[{sender}] -> {receiver}[{receiver}]"
    return f"h:1:2 [0] NCCL INFO Channel 00/0 : {pair} via {via}\n"


def report(*texts: str) -> NcclReport:
    merged = nccl_log.report(map(NcclFile, texts))
    assert merged is not None
    return merged


@pytest.mark.parametrize("record", RECORDS, ids=[record["id"] for record in RECORDS])
def test_a_recorded_log_is_read(record: dict[str, Any]) -> None:
    data = report(record["text"]).to_json()
    assert {key: data.get(key) for key in record["expected"]} == record["expected"]


def test_ranks_with_different_versions_are_all_told() -> None:
    texts = (VERSION, VERSION.replace("2.27.3", "2.26.2"))
    assert report(*texts).versions == ["2.27.3+cuda12.9", "2.26.2+cuda12.9"]


def test_a_pair_of_gpus_by_another_transport_than_most_is_odd() -> None:
    text = VERSION + channel(0, 1, "P2P/CUMEM") + channel(1, 2, "P2P/CUMEM")
    assert report(text + channel(2, 3, "SHM/direct")).odd == ["SHM between GPUs 2 to 3, others P2P"]


def test_the_network_between_gpus_of_one_node_is_odd() -> None:
    text = "h:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0\n"
    text += "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0\n"
    assert report(VERSION + text).odd == ["NET/Socket between the GPUs of one node"]


def test_warnings_after_the_last_start_are_told_apart_from_earlier_ones() -> None:
    early = "h:1:2 [0] init.cc:213 NCCL WARN early\n"
    file = NcclFile(STARTED + early + COMPLETE + early.replace("early", "late"))
    assert (file.warnings, file.late_warnings) == (["early", "late"], ["late"])


@pytest.mark.parametrize("text", ["", "no line of NCCL\n", "NCCL INFO Channel 00 : x via\n"])
def test_a_file_in_which_no_nccl_has_started_is_no_report(text: str) -> None:
    assert nccl_log.report([NcclFile(text)]) is None


def test_the_summary_is_one_line() -> None:
    network = "h:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB ; OOB ib0:x<0>\n"
    network += "h:1:2 [0] NCCL INFO Using network IB\n"
    channels = "h:1:2 [0] NCCL INFO 24 coll channels, 24 collnet channels, 0 nvls channels\n"
    remote = "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA/Shared\n"
    text = VERSION + network + channels + channel(0, 1, "P2P/CUMEM/read") + remote
    assert nccl_log.summary(report(text)) == (
        "2.27.3+cuda12.9, 24 channels, P2P/CUMEM, NET/IB/GDRDMA (mlx5_0, mlx5_1)"
    )


def test_a_file_is_read_once_it_has_settled(tmp_path: Path) -> None:
    folder = tmp_path / "nccl" / "attempt-1"
    folder.mkdir(parents=True)
    (folder / "rank-0.17").write_text(VERSION)
    watch = NcclWatch(str(tmp_path), 1)
    assert watch.tick(0.0) is None
    assert watch.tick(11.0) is None  # its size is the same: it is read at the next tick
    settled = watch.tick(12.0)
    assert settled is not None
    assert settled.versions == ["2.27.3+cuda12.9"]
    assert [watch.tick(float(now)) for now in range(13, 60)] == [None] * 47


def test_a_file_that_grows_is_read_again(tmp_path: Path) -> None:
    folder = tmp_path / "nccl" / "attempt-1"
    folder.mkdir(parents=True)
    path = folder / "rank-0.17"
    path.write_text(VERSION)
    watch = NcclWatch(str(tmp_path), 1)
    reports = [watch.tick(float(now)) for now in range(30)]
    with path.open("a") as file:
        file.write(channel(0, 1, "P2P/IPC"))
    reports += [watch.tick(float(now)) for now in range(30, 80)]
    shown = [r.transports for r in reports if r is not None]
    assert shown == [[], ["P2P/IPC"]]


def test_only_the_files_of_ranks_are_read(tmp_path: Path) -> None:
    for name in ("rank-0.1", "rank-0.2", "flight-0", "flight-0.pipe"):
        (tmp_path / name).write_text("")
    names = [os.path.basename(path) for path in nccl_log.paths(str(tmp_path))]
    assert names == ["rank-0.1", "rank-0.2"]
