"""Tables of launchers that are not installed agree with what was recorded of their source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.launcher_flags import RECORDED, flags_of, recorded

from safelaunch import launchers
from safelaunch.launchers.mpi import horovodrun

if TYPE_CHECKING:
    from safelaunch.launchers.flag_table import FlagTable

NAMES = sorted(path.stem for path in RECORDED.iterdir())
TABLES = [name for name in NAMES if launchers.load(name).FLAGS is not None]
WITHOUT_PARSER = {
    name
    for name in launchers.NAMES
    if (flags := launchers.load(name).FLAGS) is not None and not flags.parser
}


def table(name: str) -> FlagTable:
    own = launchers.load(name).FLAGS
    assert own is not None
    return own


def test_each_table_without_a_parser_to_import_has_a_recording() -> None:
    assert set(TABLES) >= WITHOUT_PARSER


@pytest.mark.parametrize("name", TABLES)
def test_flags_with_a_value_are_the_recorded_ones(name: str) -> None:
    assert sorted(table(name).valued) == recorded(name)["valued"]


@pytest.mark.parametrize("name", TABLES)
def test_switches_are_the_recorded_ones(name: str) -> None:
    assert sorted(table(name).switches) == recorded(name)["switches"]


@pytest.mark.parametrize("name", TABLES)
def test_short_flags_mean_what_was_recorded(name: str) -> None:
    assert table(name).short == recorded(name)["short"]


def test_options_of_horovodrun_take_as_many_words_as_was_recorded() -> None:
    record = recorded("horovodrun")
    arity = {name.replace("-", "_"): count for name, count in horovodrun.ARITY.items()}
    assert {name for name in record["valued"] if not arity.get(name)} == set()
    assert {name for name in record["switches"] if arity.get(name) != 0} == {"help"}


def test_a_recording_tells_values_switches_and_short_spellings_apart() -> None:
    source = """
parser.add_argument("-n", "--num-gpus", "--num_accelerators", type=int)
parser.add_argument("--module", action="store_true")
parser.add_argument("script")
"""
    assert flags_of(source) == {
        "valued": ["num_accelerators", "num_gpus"],
        "switches": ["help", "module"],
        "short": {"-n": "num_accelerators"},
    }
