from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.cli_process import safelaunch

if TYPE_CHECKING:
    from pathlib import Path

JOB = """\
name: assets
launcher: torchrun
script: train.py
processes: 2
assets:
  base: models/Qwen2-7B
  data: {path: /data/c4.bin, to: data/c4.bin}
args: {model_name_or_path: "{assets.base}", data: "{assets.data}"}
"""
REMOTE = ("remote", "--host", "gpu1", "--dry-run")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    project = tmp_path / "llm"
    project.mkdir()
    for name in ("train.py", "pyproject.toml"):
        (project / name).touch()
    (project / "job.yaml").write_text(JOB)
    return project


def test_a_dry_run_for_a_host_shows_where_each_asset_goes(folder: Path) -> None:
    result = safelaunch(folder, *REMOTE, "job.yaml", HOME=str(folder))
    assert result.code == 0, result.err
    assert (
        "\nassets\n"
        f"  base: {folder}/models/Qwen2-7B -> <home>/safelaunch/assets/Qwen2-7B    job.yaml:6:9\n"
        "  data: /data/c4.bin -> <home>/safelaunch/llm/data/c4.bin    job.yaml:7:16\n"
    ) in result.out
    assert "--model_name_or_path '<home>/safelaunch/assets/Qwen2-7B'" in result.out


def test_a_plan_for_a_host_lists_its_assets(folder: Path) -> None:
    result = safelaunch(folder, *REMOTE, "--json", "job.yaml", HOME=str(folder))
    (node,) = json.loads(result.out)["nodes"]
    assert node["assets"][0] == {
        "name": "base",
        "path": f"{folder}/models/Qwen2-7B",
        "place": "<home>/safelaunch/assets/Qwen2-7B",
        "origin": "job.yaml:6:9",
    }
    assert node["argv"][-3:] == [
        "<home>/safelaunch/assets/Qwen2-7B",
        "--data",
        "<home>/safelaunch/llm/data/c4.bin",
    ]


def test_a_plan_for_this_machine_has_the_paths_here(folder: Path) -> None:
    result = safelaunch(folder, "run", "--dry-run", "--project-root", "/home/me/llm", "job.yaml")
    assert "\n  base: /home/me/llm/models/Qwen2-7B    job.yaml:6:9\n" in result.out
    assert "--model_name_or_path /home/me/llm/models/Qwen2-7B --data /data/c4.bin" in result.out
