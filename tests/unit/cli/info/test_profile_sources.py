"""What `safelaunch profiles` prints of the sources of a profile."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from safelaunch.cli.info.profiles import command
from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

OWN = """
description: mine
accelerator: cuda
checked: "2026-11-01"
facts:
  memory_gib: {value: "24", source: the box}
  colour: green
env:
  NCCL_P2P_DISABLE: {value: "1", why: it hangs, source: tried}
"""


def printed(*words: str) -> str:
    return CliRunner().invoke(command, words, standalone_mode=False, catch_exceptions=False).output


def test_sources_are_printed_with_their_day(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(OWN)
    assert printed(str(tmp_path / "mine.yaml"), "--sources").splitlines() == [
        "mine: mine",
        "  memory_gib: 24",
        "      the box (read 2026-11-01)",
        "  colour: green",
        "      no source",
        "  NCCL_P2P_DISABLE: 1",
        "      tried (read 2026-11-01)",
    ]


def test_a_fact_of_a_parent_keeps_the_day_of_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(OWN)
    (tmp_path / "mine.yaml").write_text("extends: ./base.yaml\nchecked: '2026-11-23'\n")
    data = json.loads(printed(str(tmp_path / "mine.yaml"), "--json"))
    (profile,) = data["profiles"]
    assert {entry["checked"] for entry in profile["sources"]} == {"2026-11-01"}


def test_a_day_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(OWN.replace("2026-11-01", "today"))
    with pytest.raises(ConfigError, match="`today` is no date such as 2026-11-23"):
        printed(str(tmp_path / "mine.yaml"))


def test_a_fact_without_a_value_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(OWN.replace('value: "24", ', ""))
    with pytest.raises(ConfigError, match="`memory_gib` has no `value`"):
        printed(str(tmp_path / "mine.yaml"))


def test_detecting_prints_no_sources() -> None:
    with pytest.raises(ConfigError, match="`--detect` with `--sources`"):
        printed("--detect", "--sources")


@pytest.mark.parametrize("name", ["rtx5090", "mi300x", "ascend910c"])
def test_no_built_in_profile_prints_a_fact_without_source(name: str) -> None:
    assert "no source" not in printed(name, "--sources")
