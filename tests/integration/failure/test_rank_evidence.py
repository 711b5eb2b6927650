"""What a rank sets for itself before the user's code, so that a hang leaves evidence."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest
from support.rank_process import Rank

if TYPE_CHECKING:
    from pathlib import Path

SHOW = """
import json, os
names = ("NCCL_DEBUG", "TORCH_FR", "TORCH_NCCL")
print(json.dumps({k: v for k, v in os.environ.items() if k.startswith(names)}))
"""


class ArmedRank:
    """A rank whose plan has evidence, with a package in the shape of torch (version.py)."""

    def __init__(self, root: Path, version: str | None) -> None:
        self.rank = Rank(root)
        self.rank.env = {k: v for k, v in self.rank.env.items() if "NCCL" not in k}
        self.rank.env["SAFELAUNCH_EVIDENCE"] = "flight,nccl"
        self.folder = self.rank.node / "nccl" / "attempt-1"
        if version is not None:
            package = root / "lib" / "torch"
            package.mkdir(parents=True)
            text = "from typing import Optional\n\n__all__ = ['__version__']\n"
            (package / "version.py").write_text(f"{text}__version__ = '{version}'\n")
            self.rank.env["PYTHONPATH"] += f":{root / 'lib'}"

    def variables(self, **env: str) -> dict[str, str]:
        """Return the variables that the user's code sees, paths relative to the folder."""
        self.rank.env |= env
        # the interpreter below the virtual environment, which has a torch of its own
        code, out = self.rank.run(SHOW, "-s", python=os.path.realpath(sys.executable))
        assert code == 0, out
        folder = f"{self.folder}/"
        variables = json.loads(out)
        return {name: value.replace(folder, "") for name, value in variables.items()}


NCCL = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV", "NCCL_DEBUG_FILE": "rank-1.%p"}
PIPE = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "flight-"}
DUMP = {"TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
OLD_SIZE, NEW_SIZE = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}, {"TORCH_FR_BUFFER_SIZE": "2000"}
OLD_FILE = {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "flight-"}
NEW_FILE = {"TORCH_FR_DUMP_TEMP_FILE": "flight-"}


@pytest.mark.parametrize(
    ("version", "recorder"),
    [
        ("2.13.0+cpu", NEW_SIZE | NEW_FILE | PIPE),
        ("2.11.0", NEW_SIZE | NEW_FILE | PIPE),
        ("2.10.0+cu128", OLD_SIZE | NEW_FILE | DUMP | PIPE),
        ("2.8.0a0+git1", OLD_SIZE | NEW_FILE | DUMP | PIPE),
        ("2.7.1+cu126", OLD_SIZE | OLD_FILE | DUMP | PIPE),
        ("2.3.1", OLD_SIZE | OLD_FILE | DUMP),
        ("2.1.2", {}),
        ("unknown", {}),
        (None, {}),
    ],
    ids=str,
)
def test_the_recorder_has_the_names_of_the_version_of_torch(
    tmp_path: Path, version: str | None, recorder: dict[str, str]
) -> None:
    variables = ArmedRank(tmp_path, version).variables()
    assert {k: v for k, v in variables.items() if k.startswith("TORCH")} == recorder


def test_nccl_writes_into_a_file_of_the_rank(tmp_path: Path) -> None:
    assert ArmedRank(tmp_path, None).variables() == NCCL


@pytest.mark.parametrize("name", ["NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"])
def test_what_the_user_has_exported_for_nccl_is_left_alone(tmp_path: Path, name: str) -> None:
    assert ArmedRank(tmp_path, None).variables(**{name: "x"}) == {name: "x"}


@pytest.mark.parametrize("name", ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"])
def test_a_recorder_that_the_user_has_set_is_left_alone(tmp_path: Path, name: str) -> None:
    assert ArmedRank(tmp_path, "2.13.0").variables(**{name: "0"}) == {name: "0"} | NCCL


def test_a_percent_sign_in_the_path_is_none_of_nccls_own(tmp_path: Path) -> None:
    root = tmp_path / "100%p"
    root.mkdir()
    path = ArmedRank(root, None).variables()["NCCL_DEBUG_FILE"]
    assert path.endswith("/100%%p/node/nccl/attempt-1/rank-1.%p")


def test_a_rank_without_evidence_in_its_plan_sets_nothing(tmp_path: Path) -> None:
    rank = ArmedRank(tmp_path, "2.13.0")
    del rank.rank.env["SAFELAUNCH_EVIDENCE"]
    assert rank.variables() == {}


def test_a_folder_that_cannot_be_made_costs_the_job_nothing(tmp_path: Path) -> None:
    rank = ArmedRank(tmp_path, "2.13.0")
    (rank.rank.node / "nccl").write_text("a file")
    assert rank.variables() == {}


def test_a_dump_of_an_earlier_start_of_the_rank_is_put_aside(tmp_path: Path) -> None:
    rank = ArmedRank(tmp_path, "2.13.0")
    rank.folder.mkdir(parents=True)
    (rank.folder / "flight-1").write_text("first")
    rank.variables()
    assert not (rank.folder / "flight-1").exists()
    assert (rank.folder / "flight-1.previous").read_text() == "first"
