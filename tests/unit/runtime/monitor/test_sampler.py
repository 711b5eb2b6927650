from __future__ import annotations

import csv
import itertools
import json
import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import DATA

from safelaunch.runtime import processes
from safelaunch.runtime.monitor import gpu_sources
from safelaunch.runtime.monitor import sampler as monitor_sampler
from safelaunch.runtime.monitor.trends import warnings as trend_warnings
from safelaunch.runtime.records import RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER = DATA / "progress"
RECORDED = [json.loads(line) for line in (FOLDER / "smi.jsonl").read_text("utf-8").splitlines()]
FOUR = "\n".join(f"{i}, GPU-{i}aaa, {90 + i}, 1000, 24564, 55.5" for i in range(4))


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what puts a program named nvidia-smi on PATH, beside something like a driver."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(gpu_sources, "DRIVER_FILES", (str(tmp_path),))

    def install(script: str) -> None:
        path = tmp_path / "nvidia-smi"
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)

    return install


@pytest.fixture
def sampler(tmp_path: Path) -> Iterator[Callable[..., monitor_sampler.Samples]]:
    row = []

    def make(**run: object) -> monitor_sampler.Samples:
        row.append(monitor_sampler.Samples(str(tmp_path), RunRecord.from_json(run)))
        return row[-1]

    yield make
    for samples in row:
        if samples.pid is not None:
            processes.send(samples.pid, processes.start_time(samples.pid) or 0, 9)
            os.waitpid(samples.pid, 0)
        samples.close()


def answered(samples: monitor_sampler.Samples) -> bool:
    """Wait for the program's end, as the supervisor does."""
    pid = samples.pid or 0
    _, status = os.waitpid(pid, 0)
    return samples.reaped(pid, status)


def rows(tmp_path: Path) -> list[dict[str, str]]:
    with (tmp_path / "samples.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def rows_or_none(tmp_path: Path) -> list[dict[str, str]] | None:
    return rows(tmp_path) if (tmp_path / "samples.csv").exists() else None


# -- the file --------------------------------------------------------------------------------------


def test_a_sample_tells_memory_disk_and_load(
    sampler: Callable[..., monitor_sampler.Samples], tmp_path: Path
) -> None:
    sampler().tick(100.0)
    (row,) = rows(tmp_path)
    assert set(row) == set(monitor_sampler.HOST_COLUMNS.split(","))
    assert 0 < float(row["host_mem_used_mib"]) < float(row["host_mem_total_mib"])
    assert 0 <= float(row["run_free_mib"]) <= float(row["run_total_mib"])


def test_nothing_is_written_before_it_is_due(
    sampler: Callable[..., monitor_sampler.Samples], tmp_path: Path
) -> None:
    samples = sampler()
    for moment in (100.0, 100.25, 129.9, 130.0):
        samples.tick(moment)
    assert [row["elapsed_s"] for row in rows(tmp_path)] == ["0", "30"]


def test_a_long_run_is_covered_from_its_start_in_a_bounded_file(
    sampler: Callable[..., monitor_sampler.Samples], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor_sampler, "LIMIT", 20)
    samples = sampler()
    for turn in range(1000):
        samples.tick(turn * 30.0)
    warnings = [float(row["elapsed_s"]) for row in rows(tmp_path)]
    assert len(warnings) < 20
    assert warnings[0] == 0
    assert warnings[-1] >= 29970 - samples.interval
    gaps = {after - before for before, after in itertools.pairwise(warnings)}
    assert gaps == {samples.interval}


def test_a_folder_that_is_gone_does_not_matter(
    sampler: Callable[..., monitor_sampler.Samples], tmp_path: Path
) -> None:
    samples = sampler()
    samples.path = str(tmp_path / "gone" / "samples.csv")
    samples.tick(1.0)
    assert not (tmp_path / "gone").exists()


# -- the disk of the job's folder ------------------------------------------------------------------

# one of them is on another file system than the tests' files nearly everywhere
ELSEWHERE = (Path("/dev/shm"), Path("/tmp"), Path(__file__).parent)


@pytest.fixture
def elsewhere(tmp_path: Path) -> str:
    own = tmp_path.stat().st_dev
    folder = next((f for f in ELSEWHERE if f.is_dir() and f.stat().st_dev != own), None)
    if folder is None:
        pytest.skip("needs a second file system")
    return str(folder)


def test_another_file_system_is_asked_by_a_process_of_its_own(
    sampler: Callable[..., monitor_sampler.Samples], tmp_path: Path, elsewhere: str
) -> None:
    samples = sampler(cwd=elsewhere)
    samples.tick(1.0)
    assert rows_or_none(tmp_path) is None
    assert answered(samples)
    samples.tick(1.25)
    (row,) = rows(tmp_path)
    assert int(row["cwd_total_mib"]) == monitor_sampler.space(elsewhere)[1] // monitor_sampler.MIB  # type: ignore[operator]


def test_the_cards_are_asked_when_the_disk_has_answered(
    smi: Callable[[str], None],
    sampler: Callable[..., monitor_sampler.Samples],
    tmp_path: Path,
    elsewhere: str,
) -> None:
    smi(f"cat <<'END'\n{FOUR}\nEND")
    samples = sampler(cwd=elsewhere)
    for moment in (1.0, 1.25):
        samples.tick(moment)
        assert answered(samples)
    samples.tick(1.5)
    (row,) = rows(tmp_path)
    assert (row["gpu3_util"], int(row["cwd_free_mib"]) > 0) == ("93", True)


def test_a_disk_that_never_answers_holds_nobody_up_and_is_told_once(
    sampler: Callable[..., monitor_sampler.Samples],
    tmp_path: Path,
    elsewhere: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hangs = tmp_path / "hangs"
    hangs.write_text("#!/bin/sh\nexec sleep 600\n")
    hangs.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(hangs))
    samples = sampler(cwd=elsewhere)
    for turn in range(400):
        samples.tick(turn / 4)
    assert [event["event"] for event in samples.take_events()] == ["disk-late"]
    warnings = rows(tmp_path)
    assert len(warnings) >= 3
    assert {row["cwd_free_mib"] for row in warnings} == {""}
    assert all(int(row["run_free_mib"]) > 0 for row in warnings)


def test_without_a_descriptor_left_the_sample_goes_without(
    sampler: Callable[..., monitor_sampler.Samples], tmp_path: Path, elsewhere: str
) -> None:
    samples = sampler(cwd=elsewhere)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        samples.tick(1.0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert samples.pid is None
    samples.tick(31.0)
    assert len(rows(tmp_path)) == 1


# -- nvidia-smi ------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", RECORDED, ids=lambda record: record["name"])
def test_recorded_answers_are_read(record: dict[str, object]) -> None:
    warnings = {
        index: values for index, (_, values) in gpu_sources.parse(str(record["text"])).items()
    }
    assert warnings == record["expected"]


def test_an_answer_becomes_columns_of_the_row(
    smi: Callable[[str], None], sampler: Callable[..., monitor_sampler.Samples], tmp_path: Path
) -> None:
    smi(f"cat <<'END'\n{FOUR}\nEND")
    samples = sampler()
    samples.tick(1.0)
    assert answered(samples)
    samples.tick(1.25)
    (row,) = rows(tmp_path)
    assert [row[f"gpu{card}_util"] for card in range(4)] == ["90", "91", "92", "93"]


@pytest.mark.parametrize("devices", [["1", "3"], ["GPU-1", "GPU-3aaa"]])
def test_only_the_cards_of_the_run_are_kept(
    devices: list[str],
    smi: Callable[[str], None],
    sampler: Callable[..., monitor_sampler.Samples],
    tmp_path: Path,
) -> None:
    smi(f"cat <<'END'\n{FOUR}\nEND")
    samples = sampler(gpus=devices)
    samples.tick(1.0)
    answered(samples)
    samples.tick(1.25)
    assert [name for name in rows(tmp_path)[0] if name.endswith("util")] == [
        "gpu1_util",
        "gpu3_util",
    ]


def test_one_that_hangs_is_told_once_and_never_joined_by_a_second(
    smi: Callable[[str], None], sampler: Callable[..., monitor_sampler.Samples], tmp_path: Path
) -> None:
    smi("exec sleep 600")
    samples = sampler()
    samples.tick(0.0)
    first = samples.pid
    for turn in range(1, 800):
        samples.tick(turn / 4)
    assert samples.pid == first
    assert [event["event"] for event in samples.take_events()] == ["nvidia-smi-late"]
    assert len(rows(tmp_path)) >= 5  # the rest is sampled all the same
    assert samples.take_events() == []


def test_the_slower_it_is_the_less_often_it_is_asked(
    smi: Callable[[str], None], sampler: Callable[..., monitor_sampler.Samples]
) -> None:
    smi("exit 0")
    samples = sampler()
    samples.tick(0.0)
    pid = samples.pid or 0
    os.waitpid(pid, 0)
    samples.gpus.child_exited(pid, 0, 2.0)
    for moment in (30.0, 60.0, 390.0):
        samples.tick(moment)
        samples.tick(moment)
    assert samples.pid is None
    samples.tick(420.0)
    assert samples.pid is not None


def test_a_child_of_somebody_else_is_not_taken(
    sampler: Callable[..., monitor_sampler.Samples],
) -> None:
    assert not sampler().reaped(1, 0)


def test_without_a_driver_nobody_is_asked(
    smi: Callable[[str], None],
    sampler: Callable[..., monitor_sampler.Samples],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    smi("exit 0")
    monkeypatch.setattr(gpu_sources, "DRIVER_FILES", ("/nonexistent",))
    samples = sampler()
    samples.tick(1.0)
    assert samples.pid is None


def test_a_run_without_cards_asks_nobody(
    smi: Callable[[str], None], sampler: Callable[..., monitor_sampler.Samples]
) -> None:
    smi("exit 0")
    samples = sampler(gpus=[])
    samples.tick(1.0)
    assert samples.pid is None


# -- warnings --------------------------------------------------------------------------------------


def written(tmp_path: Path, minutes: int, **columns: Callable[[int], object]) -> str:
    """Write a file with a row each minute; each column is a function of the minute."""
    path = tmp_path / "samples.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["elapsed_s", *columns])
        for minute in range(minutes):
            writer.writerow([minute * 60, *(value(minute) for value in columns.values())])
    return str(path)


def test_one_card_that_does_nothing_is_noted(tmp_path: Path) -> None:
    path = written(tmp_path, 20, gpu0_util=lambda _: 95, gpu1_util=lambda m: 90 if m < 8 else 0)
    assert trend_warnings(path) == ["GPU 1 has been idle for 11 min while the others work"]


def test_cards_that_all_do_nothing_are_noted(tmp_path: Path) -> None:
    path = written(tmp_path, 20, gpu0_util=lambda _: 0, gpu1_util=lambda _: 1)
    assert trend_warnings(path) == ["all 2 GPUs have been idle for 19 min"]


def test_low_load_is_noted(tmp_path: Path) -> None:
    (note,) = trend_warnings(written(tmp_path, 20, gpu0_util=lambda m: 15 + m % 7))
    assert note.startswith("low GPU load: 18 %")


def test_memory_that_grows_steadily_is_noted_with_the_time_until_it_is_full(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        60,
        host_mem_used_mib=lambda m: 20000 + m * 100,
        host_mem_total_mib=lambda _: 44000,
    )
    assert trend_warnings(path) == ["host memory grows by 5.9 GiB an hour: full in about 3 h"]


def test_a_disk_that_fills_is_noted(tmp_path: Path) -> None:
    path = written(
        tmp_path, 60, cwd_free_mib=lambda m: 100000 - m * 1000, cwd_total_mib=lambda _: 900000
    )
    assert trend_warnings(path) == ["the disk of the job's folder will be full in about 41 min"]


def test_a_disk_that_is_nearly_full_is_noted_once_for_both_folders(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        3,
        cwd_free_mib=lambda _: 700,
        cwd_total_mib=lambda _: 90000,
        run_free_mib=lambda _: 700,
        run_total_mib=lambda _: 90000,
    )
    assert trend_warnings(path) == ["the disk of the job's folder is nearly full: 700 MiB left"]


def test_a_healthy_run_has_no_notes(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        120,
        host_mem_used_mib=lambda m: 20000 + 500 * (m % 5),
        host_mem_total_mib=lambda _: 64000,
        cwd_free_mib=lambda m: 500000 - 30 * (m // 20),
        cwd_total_mib=lambda _: 900000,
        gpu0_util=lambda m: 97 if m % 10 else 0,
    )
    assert trend_warnings(path) == []


@pytest.mark.parametrize("text", ["", "elapsed_s\n", "\0\xff", "elapsed_s,gpu0_util\n1,2\n2,"])
def test_a_broken_file_has_no_notes(text: str, tmp_path: Path) -> None:
    (tmp_path / "samples.csv").write_text(text, encoding="latin-1")
    assert trend_warnings(str(tmp_path / "samples.csv")) == []
