from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest

from safelaunch import launchers

if TYPE_CHECKING:
    import argparse

    from safelaunch.launchers.flag_table import FlagTable


def flags(parser: argparse.ArgumentParser, *, valued: bool) -> set[str]:
    """Return the long flags of a parser that take a value, or that take none."""
    return {
        option[2:].replace("-", "_")
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--") and (action.nargs != 0) is valued
    }


pytestmark = pytest.mark.train
FLAGS = {name: launchers.load(name).FLAGS for name in launchers.NAMES}
TABLES = {name: table for name, table in FLAGS.items() if table is not None and table.parser}


def parser_of(name: str) -> argparse.ArgumentParser:
    module, _, function = TABLES[name].parser.partition(":")
    imported = importlib.import_module(module)
    parser: argparse.ArgumentParser = getattr(imported, function)()
    return parser


@pytest.mark.parametrize("name", TABLES)
def test_flags_with_a_value_are_those_of_the_installed_launcher(name: str) -> None:
    assert set(TABLES[name].valued) == flags(parser_of(name), valued=True)


@pytest.mark.parametrize("name", TABLES)
def test_switches_are_those_of_the_installed_launcher(name: str) -> None:
    assert set(TABLES[name].switches) == flags(parser_of(name), valued=False)


@pytest.mark.parametrize("name", TABLES)
def test_short_flags_mean_what_the_installed_launcher_means(name: str) -> None:
    table: FlagTable = TABLES[name]
    for action in parser_of(name)._actions:
        for short in (o for o in action.option_strings if len(o) == 2 and o != "-h"):
            assert f"--{table.name(short)}".replace("_", "-") in [
                o.replace("_", "-") for o in action.option_strings
            ]


def test_the_predecessor_of_torchrun_has_one_switch_more() -> None:
    launch = importlib.import_module("torch.distributed.launch")
    words = ["--use_env", "--nproc-per-node", "2", "train.py"]
    assert launch.parse_args(words).use_env
    table = launchers.load("torchrun").MODULE_FLAGS["torch.distributed.launch"]
    assert table.switches - TABLES["torchrun"].switches == {"use_env"}
