"""Which matches of a glob are whole checkpoints, and which of them is the newest."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.progress import checkpoints

if TYPE_CHECKING:
    from pathlib import Path


def aged(path: Path, time: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (time, time))
    return path


@pytest.mark.parametrize(
    "pattern", ["out/*.pt", "out/b.pt", "**/*.pt", "o?t/[ab].pt", "./out/../out/b.pt"]
)
def test_the_newest_match_counts(tmp_path: Path, pattern: str) -> None:
    aged(tmp_path / "out" / "a.pt", 100)
    aged(tmp_path / "out" / "b.pt", 200)
    aged(tmp_path / "out" / "c.log", 300)
    assert checkpoints.newest_time(pattern, str(tmp_path)) == 200


def test_a_checkpoint_folder_counts_with_its_files(tmp_path: Path) -> None:
    aged(tmp_path / "checkpoint-5" / "optimizer.pt", 700)
    os.utime(tmp_path / "checkpoint-5", (100, 100))
    assert checkpoints.newest_time("checkpoint-*", str(tmp_path)) == 700


def test_no_match_is_no_time(tmp_path: Path) -> None:
    assert checkpoints.newest_time("out/*.pt", str(tmp_path)) is None


def test_a_huge_tree_is_not_walked_to_its_end(tmp_path: Path) -> None:
    for number in range(120):
        aged(tmp_path / "data" / f"{number}.bin", number)
    paths = list(checkpoints.matches("**/*.bin", str(tmp_path), [50]))
    assert len(paths) <= 50


# -- whole ones ------------------------------------------------------------------------------------


def saved(folder: Path, *names: str, time: float = 100) -> Path:
    """Write a checkpoint with one byte in each file, last changed at a time."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}" if name.endswith(".json") else "x")
        os.utime(path, (time, time))
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder, (time, time))
    return folder


def tensors(size: int) -> bytes:
    """Return a safetensors file of one tensor of four bytes, of which `size` are there."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(header)) + header + b"\0" * size


def archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("data.pkl", b"\0" * 100)
    return buffer.getvalue()


TRAINER = ("config.json", "model.safetensors", "training_args.bin", "optimizer.pt")


@pytest.mark.parametrize(
    ("name", "files", "lack"),
    [
        ("checkpoint-40", TRAINER, "lacks trainer_state.json"),
        ("checkpoint-40", (*TRAINER, "trainer_state.json"), ""),
        ("checkpoint-40", ("config.json", "model.safetensors"), "lacks trainer_state.json"),
        ("checkpoint-40", ("trainer_state.json",), ""),
        ("checkpoint-40", ("model.safetensors", "optimizer.bin"), "lacks random_states_0.pkl"),
        ("checkpoint-40", ("unet/model.safetensors", "random_states_0.pkl"), ""),
        ("step-40", ("model.pt", "optimizer.pt"), ""),
        ("step-40", ("__0_0.distcp", "__1_0.distcp"), "lacks .metadata"),
        ("step-40", ("__0_0.distcp", ".metadata"), ""),
        ("step-40", (), "is empty"),
        ("tmp-checkpoint-40", ("trainer_state.json",), "is not written to its end, by its name"),
        ("step-40.tmp", ("model.pt",), "is not written to its end, by its name"),
    ],
)
def test_a_checkpoint_is_whole_with_the_file_that_its_trainer_writes_last(
    tmp_path: Path, name: str, files: tuple[str, ...], lack: str
) -> None:
    assert checkpoints.flaw(str(saved(tmp_path / name, *files))) == lack


@pytest.mark.parametrize(
    ("name", "data", "lack"),
    [
        ("model.safetensors", tensors(4), ""),
        ("model.safetensors", tensors(3), "is cut off"),
        ("model.safetensors", tensors(4)[:30], "is cut off"),
        ("step.ckpt", archive(), ""),
        ("step.ckpt", archive()[:-30], "is cut off"),
        ("step.pt", b"", "is empty"),
        ("step.pt", b"\x80\x02 pickled", ""),
    ],
)
def test_a_file_of_states_that_is_cut_off_is_not_whole(
    tmp_path: Path, name: str, data: bytes, lack: str
) -> None:
    (tmp_path / name).write_bytes(data)
    assert checkpoints.flaw(str(tmp_path / name)) == lack


def test_a_shard_that_the_index_names_must_be_there(tmp_path: Path) -> None:
    folder = saved(tmp_path / "step-1", "a.safetensors")
    index = {"weight_map": {"w": "a.safetensors", "v": "b.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert checkpoints.flaw(str(folder)) == "lacks b.safetensors"


def test_a_trainer_state_that_was_cut_off_is_not_whole(tmp_path: Path) -> None:
    folder = saved(tmp_path / "checkpoint-40", *TRAINER)
    (folder / "trainer_state.json").write_text('{"global_step": 4')
    assert checkpoints.flaw(str(folder)) == "has trainer_state.json, which is cut off"


@pytest.mark.parametrize(
    ("tracker", "text", "step"),
    [
        ("latest", "global_step20", "global_step40"),
        ("latest_checkpointed_iteration.txt", "20", "iter_0000040"),
    ],
)
def test_a_step_behind_which_the_tracker_has_not_come_is_not_whole(
    tmp_path: Path, tracker: str, text: str, step: str
) -> None:
    aged(tmp_path / tracker, 200).write_text(text)
    os.utime(tmp_path / tracker, (200, 200))
    saved(tmp_path / step.replace("4", "2"), "model.pt", time=190)
    saved(tmp_path / step.replace("4", "1"), "model.pt", time=90)
    saved(tmp_path / step, "model.pt", time=300)
    paths, lack = checkpoints.whole("*0", str(tmp_path))
    expected = [step.replace("4", "2"), step.replace("4", "1")]
    assert (paths, lack) == (expected, f"{step} is newer than {tracker}, which names step 20")


def test_the_newest_whole_checkpoint_comes_first_by_time_then_by_step(tmp_path: Path) -> None:
    for name, time in (("checkpoint-900", 100), ("checkpoint-20", 300), ("checkpoint-100", 300)):
        saved(tmp_path / "out" / name, "trainer_state.json", time=time)
    saved(tmp_path / "out" / "checkpoint-120", *TRAINER, time=400)
    assert checkpoints.whole("out/checkpoint-*", str(tmp_path)) == (
        ["out/checkpoint-100", "out/checkpoint-20", "out/checkpoint-900"],
        "out/checkpoint-120 lacks trainer_state.json",
    )


@pytest.mark.parametrize(
    ("by_node", "path"),
    [
        ([["c-40", "c-20"]], "c-40"),
        ([["c-40", "c-20"], ["c-20", "c-40"]], "c-40"),
        ([["c-40", "c-20"], ["c-20"]], "c-20"),
        ([["c-40"], []], "c-40"),
        ([[], ["c-20"]], None),
    ],
)
def test_all_nodes_resume_from_the_newest_checkpoint_that_they_share(
    by_node: list[list[str]], path: str | None
) -> None:
    assert checkpoints.common(by_node) == path
