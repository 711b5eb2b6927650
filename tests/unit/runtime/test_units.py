from __future__ import annotations

import pytest

from safelaunch.runtime import units


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (0.0004, "1 ms"),
        (0.021, "21 ms"),
        (0.9996, "1.0 s"),
        (8.23, "8.2 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (273600, "3 d 4 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (5, "5 s"), (119, "119 s"), (300, "5 min"), (7200, "2 h"), (200000, "2 d")],
)
def test_a_brief_duration_has_one_unit_from_two_of_it_on(seconds: float, text: str) -> None:
    assert units.brief_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.5, "0.5s"), (90, "1m30s"), (3600, "1h"), (129600, "1d12h"), (5400.0, "1h30m")],
)
def test_a_duration_is_written_as_in_a_job_file(seconds: float, text: str) -> None:
    assert units.job_duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1 << 20, "1 MiB"),
        ((1 << 30) - 1, "1 GiB"),
        (81559 << 20, "79.6 GiB"),
        (3 << 40, "3 TiB"),
        (5 << 50, "5120 TiB"),
    ],
)
def test_a_size_has_the_binary_unit_that_fits(count: int, text: str) -> None:
    assert units.size(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0KiB"), (512 << 20, "512MiB"), (int(23.6 * (1 << 30)), "23.6GiB"), (24 << 30, "24GiB")],
)
def test_a_size_is_written_as_in_a_job_file(count: int, text: str) -> None:
    assert units.job_size(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (999_960, "1 MB"),
        (36_200_000, "36.2 MB"),
        (5 * 10**12, "5 TB"),
    ],
)
def test_a_transfer_is_told_in_decimal_units(count: int, text: str) -> None:
    assert units.transfer_size(count) == text


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "file", "1 file"),
        (2345, "file", "2,345 files"),
        (1, "process", "1 process"),
        (None, "process", "0 processes"),
    ],
)
def test_a_quantity_has_the_plural_of_its_noun(number: int | None, noun: str, text: str) -> None:
    assert units.quantity(number, noun) == text
