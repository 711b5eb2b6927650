"""Parts of a run: which there are, the pieces of their input, what is done, and the joined file."""

from __future__ import annotations

import json
import multiprocessing
import os
import pathlib
from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.parts import (
    FORMATS,
    PartsError,
    expand,
    manifest,
    pieces,
    preparation,
)
from safelaunch.runtime.records import FanOutSpec, PartEnd

if TYPE_CHECKING:
    from pathlib import Path


def _divided(folder: Path, text: str, form: str, count: int) -> list[str]:
    (folder / "input").write_text(text)
    targets = [str(folder / f"piece-{number}") for number in range(count)]
    pieces.divide(str(folder / "input"), form, targets)
    return targets


def test_an_input_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(PartsError, match="cannot be read: No such file or directory"):
        pieces.divide(str(tmp_path / "rows.txt"), "lines", [str(tmp_path / "0")])


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_joined_pieces_are_the_input(tmp_path: Path, form: str, count: int) -> None:
    rows = {
        "lines": "a\n\nb\nc\nd\ne\nf",
        "jsonl": "".join(f'{{"row": {row}}}\n' for row in range(7)),
        "csv": 'name,text\n1,"two\nlines"\n' + "".join(f"{row},x\n" for row in range(6)),
    }
    targets = _divided(tmp_path, rows[form], form, count)
    pieces.join(targets, form, str(tmp_path / "joined"))
    assert (tmp_path / "joined").read_text() == rows[form].rstrip("\n") + "\n"
    assert not list(tmp_path.glob("*.part"))


def test_each_piece_of_a_csv_file_has_its_header(tmp_path: Path) -> None:
    for target in _divided(tmp_path, "a,b\n1,2\n3,4\n", "csv", 2):
        with open(target, encoding="utf-8") as file:
            assert file.readline() == "a,b\n"


@pytest.mark.parametrize(
    ("text", "form", "problem"),
    [
        ("", "lines", "is empty"),
        ("a,b\n", "csv", "is empty"),
        ("\n\n", "jsonl", "is empty"),
        ("1\n2\n", "lines", "has 2 lines for 3 parts"),
        ('a\n"1\n', "csv", "a quote of its last row is not closed"),
    ],
)
def test_an_input_that_cannot_be_divided(
    tmp_path: Path, text: str, form: str, problem: str
) -> None:
    with pytest.raises(PartsError, match=problem):
        _divided(tmp_path, text, form, 3)


@pytest.mark.parametrize(
    ("texts", "form", "problem"),
    [
        (["a\n1\n", "b\n2\n"], "csv", "has another header"),
        (['{"a": 1}\n', "{\n"], "jsonl", "item 1 is no JSON"),
    ],
)
def test_outputs_that_cannot_be_joined_stay(
    tmp_path: Path, texts: list[str], form: str, problem: str
) -> None:
    for number, text in enumerate(texts):
        (tmp_path / str(number)).write_text(text)
    outputs = [str(tmp_path / str(number)) for number in range(len(texts))]
    with pytest.raises(PartsError, match=problem):
        pieces.join(outputs, form, str(tmp_path / "joined"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]


def test_a_missing_output_and_one_of_two_parts_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n")
    outputs = [str(tmp_path / "a"), str(tmp_path / "b")]
    with pytest.raises(PartsError, match="part 1 has written no"):
        pieces.join(outputs, "lines", str(tmp_path / "joined"))
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(PartsError, match="is also the output of part 0"):
        pieces.join(outputs, "lines", str(tmp_path / "joined"))


def test_a_full_disk_is_named_and_the_outputs_stay(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n")
    target = tmp_path / "joined"
    temporary = pieces.temporary_path(str(target))
    (tmp_path / "joined").write_text("earlier\n")
    os.symlink("/dev/full", temporary)
    with pytest.raises(PartsError, match="the disk is full"):
        pieces.join([str(tmp_path / "a")], "lines", str(target))
    assert target.read_text() == "earlier\n"


def test_the_last_value_of_a_matrix_changes_fastest() -> None:
    words = expand.part_words(FanOutSpec(matrix={"lr": ["1e-5", "2e-5"], "seed": ["1", "2"]}))
    assert [(row["matrix.lr"], row["matrix.seed"]) for row in words] == [
        ("1e-5", "1"),
        ("1e-5", "2"),
        ("2e-5", "1"),
        ("2e-5", "2"),
    ]


def test_a_matrix_of_a_million_is_refused_with_the_number() -> None:
    values = [str(value) for value in range(100)]
    with pytest.raises(PartsError, match="1,000,000 parts; at most 10,000"):
        expand.part_count(FanOutSpec(matrix={"a": values, "b": values, "c": values}))


def test_a_line_that_a_kill_has_cut_short_does_not_hide_later_ones(tmp_path: Path) -> None:
    manifest.add(str(tmp_path), PartEnd(part=0, state="succeeded"))
    with open(tmp_path / PartEnd.FILE, "a", encoding="utf-8") as file:
        file.write('{"part": 1, "sta')
    manifest.add(str(tmp_path), PartEnd(part=2, state="failed"))
    assert {n: end.state for n, end in manifest.read(str(tmp_path)).items()} == {
        0: "succeeded",
        2: "failed",
    }


def test_parts_that_have_succeeded_are_counted_whatever_the_cause_of_another_says(
    tmp_path: Path,
) -> None:
    ends = [PartEnd(part=part, state="succeeded", words={"a": "succeeded"}) for part in range(3)]
    for end in (*ends, PartEnd(part=3, state="failed", cause='"state": "succeeded"')):
        manifest.add(str(tmp_path), end)
    assert manifest.count_done(manifest.read_lines(str(tmp_path))) == 3
    assert len(manifest.read(str(tmp_path))) == 4


def test_a_part_is_done_only_with_the_same_values_and_input() -> None:
    end = PartEnd(part=0, state="succeeded", words={"matrix.lr": "1"}, input_sha256="ab")
    assert manifest.is_done(end, {"matrix.lr": "1"}, "ab")
    assert not manifest.is_done(end, {"matrix.lr": "2"}, "ab")
    assert not manifest.is_done(end, {"matrix.lr": "1"}, "cd")
    assert not manifest.is_done(None, {}, "")


def test_lists_in_the_outputs_become_one_list(tmp_path: Path) -> None:
    outputs = [tmp_path / "0", tmp_path / "1"]
    for number, path in enumerate(outputs):
        path.write_text(json.dumps([number]))
    target = tmp_path / "all.json"
    pieces.join([str(path) for path in outputs], "json", str(target))
    assert json.loads(target.read_text()) == [0, 1]


def test_an_output_that_is_no_list_is_refused(tmp_path: Path) -> None:
    (tmp_path / "0").write_text("{}")
    with pytest.raises(PartsError, match="is no JSON list"):
        pieces.join([str(tmp_path / "0")], "json", str(tmp_path / "all.json"))


def _record(folder: str, part: int) -> int:
    return manifest.add_in_order(folder, PartEnd(part=part, state="succeeded"))


def test_of_parts_that_end_at_once_in_many_processes_exactly_one_is_the_last(
    tmp_path: Path,
) -> None:
    manifest.make_folder(str(tmp_path))
    context = multiprocessing.get_context("spawn")
    with context.Pool(4) as pool:
        rows = [(str(tmp_path), part) for part in [*range(40), *range(40)]]
        numbers = pool.starmap(_record, rows, chunksize=1)
    assert numbers[:40] == numbers[40:]  # the second time it is the same end
    assert sorted(numbers[:40]) == list(range(40))
    ends = manifest.read(str(tmp_path))
    assert [numbers.index(at) for at in range(40)] == list(ends)
    assert manifest.count_done(manifest.read_lines(str(tmp_path))) == 40
    assert sorted(path.name for path in (tmp_path / manifest.FOLDER).iterdir()) == sorted(
        map(str, range(40))
    )


def test_a_rerun_in_which_all_parts_are_done_runs_the_last_one_for_the_merge(
    tmp_path: Path,
) -> None:
    earlier, again = tmp_path / "earlier" / "node-0", tmp_path / "again" / "node-0"
    spec = FanOutSpec(count=3, is_array=True)
    assert preparation.prepare_array(str(earlier), spec) == [0, 1, 2]
    for part in (2, 0):
        words = {"shard.index": str(part), "shard.count": "3"}
        end = PartEnd(part=part, state="succeeded", words=words)
        manifest.add_in_order(str(earlier), end)
        pathlib.Path(preparation.output_path(str(earlier), part)).write_text(f"of {part}")
    spec.earlier = str(earlier)
    assert preparation.prepare_array(str(again), spec) == [1]
    assert pathlib.Path(preparation.output_path(str(again), 2)).read_text() == "of 2"
    words = {"shard.index": "1", "shard.count": "3"}
    manifest.add_in_order(str(again), PartEnd(part=1, state="succeeded", words=words))
    spec.earlier = str(again)
    assert preparation.prepare_array(str(tmp_path / "third" / "node-0"), spec) == [2]
