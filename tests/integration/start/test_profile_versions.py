"""Which workarounds of a profile a start sets, by the versions that it reads on its machine."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from support.workspace import Place

SHOW = (
    "import os\nprint('set', *sorted(n for n in os.environ if n.startswith('NCCL_')), flush=True)\n"
)
SWITCHES = "NCCL_SHM_DISABLE, NCCL_P2P_DISABLE, NCCL_IB_DISABLE"


def environment(folder: Path, nccl: str) -> Path:
    """Write a virtual environment that holds the files of torch and NCCL which a start reads."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    site = folder / "lib" / name / "site-packages"
    library = site / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    for path in (folder / "bin", site / "torch", library.parent):
        path.mkdir(parents=True, exist_ok=True)
    library.write_bytes(b"\x7fELF\0NCCL version " + nccl.encode() + b"+cuda12.8\0")
    (site / "torch" / "__init__.py").write_text("raise ImportError('a start imports no torch')")
    (site / "torch" / "version.py").write_text("__version__ = '2.9.1+cu128'\ncuda = '12.8'\n")
    if not (folder / "pyvenv.cfg").exists():
        base = f"{sys.base_prefix}/bin"
        (folder / "pyvenv.cfg").write_text(f"home = {base}\n")
        (folder / "bin" / "python").symlink_to(f"{base}/{name}")
    return folder


def test_a_start_reads_the_version_of_nccl_and_sets_only_what_it_needs(place: Place) -> None:
    venv = environment(place.root / "env", "2.27.5")
    job = place.job(SHOW, python=None, venv=str(venv), profile="rtx5090", gpus=[0, 1])
    saved = {"hosts": {"localhost": {"facts": {"nccl": "2.22.3"}}}}  # by `check --save`, of old
    (place.home / "hosts.yaml").parent.mkdir(parents=True, exist_ok=True)
    (place.home / "hosts.yaml").write_text(json.dumps(saved))
    done = place.cli("run", "--follow", "--no-check", job)
    expected = f"NCCL 2.27.5 found: {SWITCHES} not set (needed below 2.26.5, except 2.26.2.post1)"
    assert expected in " ".join(done.stderr.split())
    assert "| set\n" in done.stdout or "set\n" in done.stdout.splitlines(keepends=True)
    run = place.json("show")["id"]
    assert json.loads((place.node(run) / "run.json").read_text())["decisions"] == [expected]
    environment(venv, "2.23.4")
    rerun = place.cli("rerun", "--follow")
    assert "set NCCL_IB_DISABLE NCCL_P2P_DISABLE NCCL_SHM_DISABLE" in rerun.stdout
    (venv / "lib").rename(venv / "gone")  # then what was saved counts
    assert "NCCL 2.22.3 found" in " ".join(place.cli("rerun", "--follow").stderr.split())


PEERS = " \tGPU0\tGPU1\t\n GPU0\tX\t{0}\t\n GPU1\t{0}\tX\t\n"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("OK", "the GPUs have peer access: NCCL_P2P_DISABLE not set"),
        ("CNS", "the GPUs have no peer access: NCCL_P2P_DISABLE set"),
    ],
)
def test_a_start_never_cuts_a_driver_off_from_its_peer_access(
    place: Place, status: str, expected: str
) -> None:
    smi = place.root / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    (place.root / "peers").write_text(PEERS.format(status))
    smi.write_text(f"#!/bin/sh\ncat {place.root}/peers\n")
    smi.chmod(0o755)
    place.env["PATH"] = f"{smi.parent}:{place.env['PATH']}"
    venv = environment(place.root / "env", "2.23.4")
    job = place.job(SHOW, python=None, venv=str(venv), profile="rtx5090", gpus=[0, 1])
    done = place.cli("run", "--follow", "--no-check", job)
    assert expected in " ".join(done.stderr.split())
