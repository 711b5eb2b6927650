from __future__ import annotations

import io
import os
import random
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safelaunch.diagnose import literal_search, scan
from safelaunch.diagnose.literal_search import BlockSearch, LiteralFinder
from safelaunch.diagnose.logs import byte_streams
from safelaunch.diagnose.logs.sources import ChunkStream, LogReader, LogSource
from safelaunch.diagnose.root_cause import diagnose
from safelaunch.diagnose.scan import Scan
from safelaunch.runtime.signatures import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from safelaunch.diagnose.root_cause import Diagnosis
    from safelaunch.diagnose.scan import Excerpt

ALARM = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."
OTHER = b"OSError: [Errno 28] No space left on device"
NOISE = b"RuntimeError: CUDA error: an illegal memory access was encountered"
DEADLINE = 60.0  # seconds of CPU that no log here may take


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    start = time.process_time()
    yield
    assert time.process_time() - start < DEADLINE


@pytest.fixture(scope="module")
def finder() -> LiteralFinder:
    return LiteralFinder(table.load())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make borders frequent: of what is read whole, of blocks, pages, and the end of a log."""
    monkeypatch.setattr(byte_streams, "BLOCK_BYTES", 4096)
    monkeypatch.setattr(scan, "PAGE_BYTES", 512)
    monkeypatch.setattr(scan, "WHOLE_LOG_BYTES", 2048)
    monkeypatch.setattr(scan, "MAX_LAST_BYTES", 8192)
    monkeypatch.setattr(scan, "MAX_PAGES", 4)
    monkeypatch.setattr(scan, "SAMPLE_BYTES", 128)
    monkeypatch.setattr(literal_search, "COMMON_BYTES_PER_HIT", 16)


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read blocks and keep excerpts of a 16th of the usual size."""
    monkeypatch.setattr(byte_streams, "BLOCK_BYTES", byte_streams.BLOCK_BYTES // 16)
    for name in (
        "WHOLE_LOG_BYTES", "PAGE_BYTES", "SAMPLE_BYTES",
        "MAX_FIRST_BYTES", "MAX_RARE_BYTES", "MAX_LAST_BYTES",
    ):  # fmt: skip
        monkeypatch.setattr(scan, name, getattr(scan, name) // 16)
    per_hit = literal_search.COMMON_BYTES_PER_HIT // 16
    monkeypatch.setattr(literal_search, "COMMON_BYTES_PER_HIT", per_hit)


def scanned(data: bytes, finder: LiteralFinder) -> tuple[list[Excerpt], Scan]:
    scan = Scan(LogReader(LogSource("x"), io.BytesIO(data)), finder)
    return scan.run(), scan


def evidence_lines(excerpts: list[Excerpt]) -> dict[int, bytes]:
    """Return the lines that excerpts hold, by their numbers; none may be there twice."""
    lines_by_number: dict[int, bytes] = {}
    for excerpt in excerpts:
        for index, line in enumerate(excerpt.text.removesuffix(b"\n").split(b"\n")):
            assert excerpt.number + index not in lines_by_number
            lines_by_number[excerpt.number + index] = line
    return lines_by_number


def diagnose_text(data: bytes) -> Diagnosis:
    return diagnose([LogReader(LogSource("x"), io.BytesIO(data))])


def quiet(count: int) -> bytes:
    return b"".join(b"2025-01-01 step %d/many lr 1e-5\n" % n for n in range(count))


# -- numbers and borders ---------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_each_alarm_is_kept_with_its_number_and_the_lines_beside_it(
    finder: LiteralFinder, data: st.DataObject
) -> None:
    widths = data.draw(st.lists(st.integers(0, 900), min_size=1, max_size=120))
    lines = [b"." * width for width in widths]
    matches = data.draw(st.sets(st.integers(0, len(lines) - 1), max_size=6))
    for place in matches:
        lines[place] = ALARM + b" " + lines[place]
    ending = data.draw(st.sampled_from([b"", b"\n"]))
    size = data.draw(st.integers(1, 9000))
    text = b"\n".join(lines) + ending
    stream = ChunkStream(text[i : i + size] for i in range(0, len(text), size))
    lines_by_number = evidence_lines(Scan(LogReader(LogSource("x"), stream), finder).run())
    lines = text.removesuffix(b"\n").split(b"\n")  # what follows the last end is no line
    for place in matches:
        for near in range(max(0, place - 1), min(len(lines), place + 2)):
            if len(lines[near]) < 512 or near == place:
                assert lines_by_number[near + 1] == lines[near]
    assert all(lines[number - 1] == line for number, line in lines_by_number.items())


@pytest.mark.usefixtures("small")
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    before=st.integers(0, 600),
    after=st.integers(0, 600),
    colour=st.booleans(),
    ends=st.sampled_from([b"\n", b"\r\n"]),
)
def test_the_finding_in_a_large_log_is_that_of_reading_it_whole(
    before: int, after: int, colour: bool, ends: bytes
) -> None:
    alarm = b"\x1b[31mtorch.OutOfMem\x1b[1moryError\x1b[0m" + ALARM.removeprefix(
        b"torch.OutOfMemoryError"
    )
    text = quiet(before) + (alarm if colour else ALARM) + b"\n" + quiet(after).replace(b"lr", b"_")
    (cause,) = diagnose_text(text.replace(b"\n", ends)).causes
    assert (cause.name, cause.number, cause.line) == ("cuda-oom", before + 1, ALARM.decode())


@pytest.mark.usefixtures("small")
def test_a_log_beyond_the_size_that_is_read_whole_gives_the_same_number() -> None:
    for size in (
        scan.WHOLE_LOG_BYTES - 200,
        scan.WHOLE_LOG_BYTES + 200,
        12 * byte_streams.BLOCK_BYTES,
    ):
        lines = quiet(size // 36)
        assert diagnose_text(lines + ALARM + b"\n").causes[0].number == lines.count(b"\n") + 1


def test_the_traceback_above_an_exception_is_kept(finder: LiteralFinder) -> None:
    frames = b"".join(
        b'  File "/home/x/train.py", line %d, in f%d\n    f%d()\n' % (n, n, n) for n in range(900)
    )
    text = quiet(90_000) + b"Traceback (most recent call last):\n" + frames + b"ValueError: bad\n"
    lines_by_number = evidence_lines(scanned(text + quiet(90_000), finder)[0])
    start, end = 90_001, 90_001 + 1801
    assert lines_by_number[start].startswith(b"Traceback")
    assert lines_by_number[end] == b"ValueError: bad"


def test_the_first_page_is_kept(finder: LiteralFinder) -> None:
    excerpts, _ = scanned(b"NVIDIA H800, torch 2.4\n" + quiet(100_000), finder)
    assert excerpts[0].text.startswith(b"NVIDIA H800")


def test_progress_at_the_end_of_a_large_log_is_seen(finder: LiteralFinder) -> None:
    text = quiet(100_000) + b"step 7 loss 0.5\n" + b"saved\n"
    assert scanned(text, finder)[1].activity.step == 100_001


# -- odd logs --------------------------------------------------------------------------------------


def bars() -> bytes:
    states = (b"\r%3d%%|####     | %d/90000 [00:01<00:02]" % (n // 900, n) for n in range(90_000))
    return b"".join(states)


def test_an_alarm_behind_a_bar_that_never_ends_its_line_is_found() -> None:
    cause = diagnose_text(bars() + b"\n" + ALARM + b"\n").causes[0]
    assert (cause.name, cause.number) == ("cuda-oom", 2)


def test_an_alarm_that_runs_into_a_bar_is_found() -> None:
    assert diagnose_text(bars() + b"\r" + ALARM + b"\n").causes[0].number == 1


def test_an_alarm_behind_a_line_of_many_mib_is_found_in_little_memory() -> None:
    pieces_of = [b"x" * (1 << 20)] * 64
    stream = ChunkStream(iter([b"begin\n", *pieces_of, b"\n" + ALARM + b"\n"]))
    cause = diagnose([LogReader(LogSource("x"), stream)]).causes[0]
    assert (cause.name, cause.number) == ("cuda-oom", 3)


@pytest.mark.parametrize("count", [5, 100_000])
def test_a_code_that_is_never_closed_takes_no_line_with_it(count: int) -> None:
    text = b"\x1b]0;title\n" + quiet(count) + ALARM + b"\n\x07"
    assert diagnose_text(text).causes[0].number == count + 2


@pytest.mark.parametrize("hole", [b"\0" * 5000, b"\0" * (3 << 20)])
def test_a_hole_within_a_log_changes_no_number(hole: bytes) -> None:
    lines = quiet(60_000)
    text = lines + hole + lines + ALARM + b"\n" + hole
    assert diagnose_text(text).causes[0].number == 120_001


def test_other_encodings_beside_an_alarm_change_nothing() -> None:
    text = "größe\n".encode("latin-1") * 500_000 + "模型 ".encode() + ALARM + b"\n"
    assert diagnose_text(text).causes[0].number == 500_001


@pytest.mark.usefixtures("small")
def test_utf_16_gives_the_numbers_of_its_lines() -> None:
    text = (quiet(4000) + ALARM + b"\n").decode()
    assert diagnose_text(text.encode("utf-16")).causes[0].number == 4001


# -- too many alarms -------------------------------------------------------------------------------


def total_bytes(excerpts: list[Excerpt]) -> int:
    return sum(len(excerpt.text) for excerpt in excerpts)


def most_bytes() -> int:
    """Return a bound on the excerpts of a log."""
    excerpts = scan.MAX_FIRST_BYTES + scan.MAX_RARE_BYTES + scan.MAX_LAST_BYTES
    return excerpts + byte_streams.BLOCK_BYTES


@pytest.mark.usefixtures("little_memory")
def test_of_alarms_on_all_lines_the_first_and_the_last_are_kept(finder: LiteralFinder) -> None:
    count = (2 << 20) // len(NOISE)
    excerpts, _ = scanned((NOISE + b"\n") * count, finder)
    lines_by_number = evidence_lines(excerpts)
    assert (min(lines_by_number), max(lines_by_number)) == (1, count)
    assert total_bytes(excerpts) < most_bytes()


@pytest.mark.usefixtures("little_memory")
def test_alarms_on_all_lines_make_few_excerpts(finder: LiteralFinder) -> None:
    excerpts, _ = scanned((NOISE + b"\n") * ((1 << 20) // len(NOISE)), finder)
    largest = scan.MAX_PAGES * scan.PAGE_BYTES
    assert len(excerpts) <= 2 * total_bytes(excerpts) // largest


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("place", [0.3, 0.5, 0.7])
def test_what_is_rare_is_kept_among_alarms_on_all_lines(
    finder: LiteralFinder, place: float
) -> None:
    count = (3 << 19) // len(NOISE)
    at = int(count * place)
    text = (NOISE + b"\n") * at + OTHER + b"\n" + (NOISE + b"\n") * (count - at)
    assert evidence_lines(scanned(text, finder)[0])[at + 1] == OTHER


@pytest.mark.usefixtures("little_memory")
def test_many_kinds_of_alarms_stay_in_little_memory(finder: LiteralFinder) -> None:
    rng = random.Random(1)  # noqa: S311 - the same lines each time
    texts = [text.encode() for text in finder.texts]
    text = b"\n".join(b"%s %d" % (rng.choice(texts).strip(), n) for n in range(20_000))
    assert total_bytes(scanned(text, finder)[0]) < most_bytes()


def test_in_a_log_full_of_alarms_each_other_text_is_found(finder: LiteralFinder) -> None:
    usual = b"gpu01:1:2 [3] NCCL INFO Channel 02/0 via P2P/IPC/read\n"
    texts = [b"%s %d\n" % (text.encode(), n) for n, text in enumerate(finder.texts) if n % 7 == 0]
    search = BlockSearch(finder)
    search.hits(usual * 10_000, is_middle=True)  # shows what is common
    data = usual * 5000 + (usual * 9).join(texts) + usual * 5000
    common = {number for number, _, _ in finder.matches(usual)}
    others = [number for number, _, _ in finder.matches(data) if number not in common]
    assert search.hits(data, is_middle=True).literals == others
    last = search.hits(data, is_middle=False)
    assert last.literals == others
    for start in range(0, 5000 * len(usual), len(usual)):  # each line of the end has them as well
        assert last.within(data, slice(start, start + len(usual)), slice(0, 0)) == common
    assert not last.is_empty(usual)


@pytest.mark.parametrize("is_middle", [True, False])
def test_a_block_that_repeats_another_is_read_as_far_as_it_differs(
    finder: LiteralFinder, *, is_middle: bool
) -> None:
    line, other = NOISE + b"\n", OTHER + b"\n"
    search = BlockSearch(finder)
    for _ in range(3):
        search.hits(line * 1000, is_middle=True)
    for data in (line * 900, line * 1000, line * 1100, line * 1000 + NOISE[:20]):
        assert search.hits(data, is_middle=is_middle).ends == []
    for data in (
        line * 1000 + other,
        line * 500 + other + line * 500,
        other + line * 999,
        line * 999 + NOISE + OTHER + b"\n" + line,
    ):
        numbers = {number for number, _, _ in finder.matches(other)}
        common = {number for number, _, _ in finder.matches(line)}
        hits = search.hits(data, is_middle=is_middle)
        assert set(hits.literals) == numbers - common
        assert search.hits(line * 1000, is_middle=is_middle).ends == []


def test_common_texts_in_an_excerpt_are_found_where_they_count(finder: LiteralFinder) -> None:
    line = NOISE.decode()
    lines = [line] * 2000 + [OTHER.decode()] + [line] * 2000
    fresh = LiteralFinder(table.load())
    every = set(fresh(lines))
    search = BlockSearch(finder)
    search.hits((NOISE + b"\n") * 5000, is_middle=True)
    search.hits((NOISE + b"\n") * 5000, is_middle=True)  # from now on they are common
    assert set(finder(lines)) == every
    assert set(finder([line, *lines[1990:2010], line])) == set(
        fresh([line, *lines[1990:2010], line])
    )


def test_lines_of_a_mib_each_with_an_alarm_are_kept_without_their_middle(
    finder: LiteralFinder,
) -> None:
    line = NOISE + b" " + b"x" * 900_000 + b"\n"
    excerpts, _ = scanned(line * 40, finder)
    assert sorted(evidence_lines(excerpts)) == list(range(1, 41))
    assert total_bytes(excerpts) < 40 * (scan.MAX_LINE_BYTES + 10)


def test_of_very_many_logs_only_the_first_are_read_whole() -> None:
    lines = quiet(30_000)
    fresh = LiteralFinder(table.load())
    sizes = [total_bytes(scanned(lines, fresh)[0]) for _ in range(40)]
    assert sizes[0] == len(lines)
    assert sizes[-1] < 3 * scan.PAGE_BYTES


# -- an end from outside ---------------------------------------------------------------------------


def interrupted(head: bytes) -> Iterator[bytes]:
    yield head
    raise KeyboardInterrupt


@pytest.mark.parametrize("count", [10, 100_000])
def test_an_interrupt_keeps_what_came_so_far(finder: LiteralFinder, count: int) -> None:
    text = quiet(count) + ALARM
    scan = Scan(LogReader(LogSource("-"), ChunkStream(interrupted(text))), finder)
    assert evidence_lines(scan.run())[count + 1] == ALARM
    assert scan.reader.is_interrupted
    note = f"standard input: interrupted; read up to line {count + 1:,}"
    assert note in scan.reader.notes


# -- literals --------------------------------------------------------------------------------------


def test_literals_within_others_are_found(finder: LiteralFinder) -> None:
    lines = [line.decode() for line in (ALARM, b"fine", OTHER)]
    pairs = set(finder(lines))
    assert {index for index, _ in pairs} == {0, 2}
    for index, line in enumerate(lines):
        expected = {(index, text) for text in finder.signature_literals if text in line}
        assert {pair for pair in pairs if pair[0] == index} == expected


def test_the_fast_and_the_small_search_agree(finder: LiteralFinder) -> None:
    data = b"\n".join([ALARM, OTHER, NOISE, os.urandom(2000)])
    by_bytes = {finder.texts[number] for number, _, _ in finder.matches(data)}
    assert by_bytes == {text for text in finder.texts if text.encode() in data}
