"""How many GPUs a start counts for `gpus: auto`, by what the drivers show in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.runtime.start import start_probe

if TYPE_CHECKING:
    from pathlib import Path


def write(root: Path, path: str, text: str = "") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def node(root: Path, number: int, simd_count: int) -> None:
    """Write a node of AMD's kernel driver (Documentation of the kernel, amdkfd topology)."""
    text = (
        f"cpu_cores_count {0 if simd_count else 96}\nsimd_count {simd_count}\nmem_banks_count 1\n"
    )
    write(root, f"sys/class/kfd/kfd/topology/nodes/{number}/properties", text)


def test_gpus_of_amd_are_the_nodes_that_compute(tmp_path: Path) -> None:
    node(tmp_path, 0, 0)  # the CPU
    for number in (1, 2):
        node(tmp_path, number, 304)
    assert start_probe.gpus(str(tmp_path)) == 2


def test_npus_are_counted_without_their_manager(tmp_path: Path) -> None:
    for name in ("davinci0", "davinci1", "davinci10", "davinci_manager"):
        write(tmp_path, f"dev/{name}")
    assert start_probe.gpus(str(tmp_path)) == 3


def test_gpus_of_nvidia_come_before_graphics_of_amd(tmp_path: Path) -> None:
    write(tmp_path, "proc/driver/nvidia/gpus/0000:01:00.0/information")
    for number in (1, 2):
        node(tmp_path, number, 4)
    assert start_probe.gpus(str(tmp_path)) == 1


def test_a_machine_without_drivers_has_no_gpus(tmp_path: Path) -> None:
    assert start_probe.gpus(str(tmp_path)) == 0
