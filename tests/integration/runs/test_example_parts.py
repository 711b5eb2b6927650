"""The examples with many parts, run as they are, but for the number of parts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from support import REPOSITORY

if TYPE_CHECKING:
    from support.workspace import Place

EXAMPLE = REPOSITORY / "examples" / "parts"


def test_the_labels_of_all_shards_are_those_of_one_program_over_the_whole_file(
    place: Place,
) -> None:
    shutil.copytree(EXAMPLE, place.project, dirs_exist_ok=True)
    place.write("pyproject.toml", "")
    words = ("--set", "shards.parts=7", "--set", f"python={sys.executable}")
    done = place.cli("run", "--follow", "inference.yaml", *words)
    assert "the outputs of 7 parts are merged in" in done.stdout
    whole = ["--model", "data/model.json", "--data", "data/reviews.csv", "--out", "whole.csv"]
    script = [sys.executable, "scripts/classify.py", *whole]
    subprocess.run(script, cwd=place.project, check=True, timeout=60)
    labels = (place.project / "out" / "labels.csv").read_text()
    assert labels == (place.project / "whole.csv").read_text()
    assert len(labels.splitlines()) == 501
