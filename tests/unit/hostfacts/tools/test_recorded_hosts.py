"""Recorded outputs of real hosts are read as they should be; cut or garbled ones never raise."""

from __future__ import annotations

import random
import time

import pytest
from support.facts.gpu_host_records import as_expected, differences, records

from safelaunch.hostfacts.tools.recognise import read_report

RECORDS = records()


@pytest.mark.parametrize("record", RECORDS, ids=[record["id"] for record in RECORDS])
def test_a_recorded_output_is_read_as_expected(record: dict[str, str]) -> None:
    assert differences(record) == []


@pytest.mark.parametrize("record", RECORDS, ids=[record["id"] for record in RECORDS])
def test_windows_line_ends_and_colours_change_nothing(record: dict[str, str]) -> None:
    text = record["text"].replace("\n", "\x1b[0m\r\n")
    assert differences({**record, "text": text}) == []


def test_cut_and_garbled_outputs_never_raise() -> None:
    chance = random.Random(5)  # noqa: S311 - the same texts each time
    pieces = ("ERR!", "\t", "|", " X ", "\n", "[N/A]", "²", "\0", "GPU0", "9" * 6000, "<gpu>")
    for _ in range(600):
        record = chance.choice(RECORDS)
        text = record["text"]
        for _ in range(chance.randint(1, 4)):
            at = chance.randint(0, len(text))
            to = at + chance.randint(0, 200)
            inserted = chance.choice((*pieces, chance.choice(RECORDS)["text"][at:to]))
            text = chance.choice((text[:at], text[at:], text[:at] + inserted + text[to:]))
        as_expected(read_report(text, record["command"]))


@pytest.mark.parametrize(
    "text",
    [" " * 300_000, "|" * 300_000, "GPU 0: " * 40_000, "GPU0 X " * 40_000, "| 0 " * 60_000],
    ids=["blanks", "bars", "cards", "rows", "cells"],
)
def test_no_text_takes_long(text: str) -> None:
    start = time.process_time()
    read_report(text, "nvidia-smi --query-gpu=index,name --format=csv,noheader")
    assert time.process_time() - start < 10
