"""The load of accelerators, by the files of AMD's kernel driver and the table of npu-smi."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from support import DATA

from safelaunch.runtime.monitor import gpu_sources

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = {
    record["id"]: record["text"]
    for path in sorted((DATA / "gpu-hosts").glob("*.jsonl"))
    for record in map(json.loads, path.read_text("utf-8").splitlines())
}


@pytest.fixture(autouse=True)
def _machine_without_nvidia(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_sources, "DRIVER_FILES", ())


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def gpu(root: Path, node: int, minor: int, **files: str) -> None:
    """Write a GPU as AMD's kernel driver shows it."""
    text = f"simd_count 304\ndrm_render_minor {minor}\n"
    write(root, f"sys/class/kfd/kfd/topology/nodes/{node}/properties", text)
    for name, value in files.items():
        write(root, f"sys/class/drm/renderD{minor}/device/{name}", f"{value}\n")


def measure(root: Path) -> gpu_sources.Rows:
    source = gpu_sources.find(dict(os.environ), str(root))
    assert source is not None
    done = subprocess.run(source.argv, capture_output=True, text=True, check=False)
    return source.parse(done.stdout)


def test_files_of_amd_are_percent_mebibytes_and_watts(tmp_path: Path) -> None:
    gpu(
        tmp_path, 1, 128,
        gpu_busy_percent="97", mem_info_vram_used="2147483648", mem_info_vram_total="206158430208",
    )  # fmt: skip
    write(tmp_path, "sys/class/drm/renderD128/device/hwmon/hwmon4/power1_input", "745000000\n")
    assert measure(tmp_path) == {"0": ("", [97, 2048, 196608, 745])}


def test_gpus_of_amd_are_counted_in_the_order_of_their_nodes(tmp_path: Path) -> None:
    write(tmp_path, "sys/class/kfd/kfd/topology/nodes/0/properties", "simd_count 0\n")  # the CPU
    gpu(tmp_path, 10, 136, gpu_busy_percent="10")
    gpu(tmp_path, 2, 144, gpu_busy_percent="2")
    assert {index: row[1][0] for index, row in measure(tmp_path).items()} == {"0": 2, "1": 10}


def test_the_table_of_npus_is_read_chip_by_chip() -> None:
    rows = gpu_sources.parse_npu(RECORDS["npu-info-a3-two-chips"])
    assert rows == {"0": ("", [0, 3397, 65536, 178.8]), "1": ("", [0, 3186, 65536, None])}


def test_a_machine_without_drivers_has_no_source(tmp_path: Path) -> None:
    assert gpu_sources.find(dict(os.environ), str(tmp_path)) is None
