"""Which packages the record of a run names first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.code import manifest
from safelaunch.runtime.code.store import ContentStore
from safelaunch.runtime.records import Checkout, CodeRecord, RunRecord
from safelaunch.runtime.start import code_files, provenance

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("argv", "uses"),
    [
        (
            ["-m", "accelerate.commands.launch", "train.py"],
            ["accelerate", "trl", "torch", "deepspeed"],
        ),
        (["train.py"], ["trl", "torch", "deepspeed"]),
        (["-m", "torch.distributed.run", "util.py"], ["torch", "deepspeed", "trl"]),
        (["-m", "swift.cli.sft"], ["ms-swift", "trl", "torch", "deepspeed"]),
    ],
)
def test_the_packages_of_launcher_and_program_come_first(
    tmp_path: Path, argv: list[str], uses: list[str]
) -> None:
    (tmp_path / "train.py").write_text("import os\nfrom trl import SFTTrainer\nimport torch.nn\n")
    (tmp_path / "util.py").write_text("def f():\n    import deepspeed\n")
    names = ["train.py", "util.py", "gone.py"]
    assert provenance.used(argv, str(tmp_path), names) == uses


def test_the_code_of_a_run_here_is_recorded_and_that_of_another_machine_is_taken_over(
    tmp_path: Path,
) -> None:
    node_dir, project = tmp_path / "home" / "runs" / "a-1" / "node-0", tmp_path / "project"
    for folder in (node_dir, project / "exp", project / "src", tmp_path / "lib"):
        folder.mkdir(parents=True)
        (folder / "a.py").write_text(folder.name)
    run = RunRecord(
        cwd=str(project / "exp"),
        roots=[str(project / "exp"), str(project / "src")],
        job_file=str(tmp_path / "lib" / "a.py"),
    )
    hashes, _ = code_files.recorded(run, ["python", "a.py"])
    record = provenance.code(str(node_dir), run, hashes)
    assert (record.root, record.files) == (str(project), 2)
    text = ContentStore(str(tmp_path / "home")).get(record.manifest)
    assert [f.path for f in manifest.from_bytes(text or b"")] == ["exp/a.py", "src/a.py"]
    assert CodeRecord.read(str(node_dir)) == record
    CodeRecord(git=Checkout(commit="1" * 40)).write(str(node_dir))
    assert provenance.code(str(node_dir), run, {}).git == Checkout(commit="1" * 40)


@pytest.mark.parametrize(
    ("cwd", "root", "checkout", "project"),
    [
        ("/w/p/exp", "/w/p/src", None, "/w/p"),
        ("/w/p/exp", "/w/p/src", "/w/p", "/w/p"),
        ("/w/p/exp", "/w/q", "/w/p", "/w/p/exp"),
        ("/w/p/exp", "/q", None, "/w/p/exp"),
    ],
)
def test_the_root_of_a_project_is_no_folder_of_everything(
    cwd: str, root: str, checkout: str | None, project: str
) -> None:
    run = RunRecord(cwd=cwd, roots=[cwd, root])
    assert code_files.project_files(run, {}, checkout) == (project, [])
