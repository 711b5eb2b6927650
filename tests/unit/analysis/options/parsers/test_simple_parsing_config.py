from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from support.inputs.option_scripts import script_options

from safelaunch.analysis.options.unknown_options import option_problems
from safelaunch.model import Args

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.analysis.options.read import ScriptOptions

# The verdicts are those of simple-parsing 0.1.9.
CLASSES = """
    from dataclasses import dataclass, field
    from typing import List, Optional
    import simple_parsing
    from simple_parsing import choice, list_field, mutable_field, parse
    @dataclass
    class Optim:
        learning_rate: float = 1e-4
        nesterov: bool = False
    @dataclass
    class Base:
        seed: int = 0
    @dataclass
    class Config(Base):
        out_dir: str
        n: int = 3
        steps: Optional[int] = None
        sizes: List[int] = list_field(1, 2)
        kind: str = choice("a", "b", default="a")
        optim: Optim = mutable_field(Optim)
        cache: int = field(init=False, default=1)
"""
SCRIPT = CLASSES + "    config = parse(Config)\n"


def read(folder: Path, script: str = SCRIPT) -> ScriptOptions:
    return script_options(folder, script)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--out_dir x", None),
        ("--out_dir x --learning_rate 1 --nesterov --sizes 1 2 --kind b -n 1", None),
        ("--out_dir x --nonesterov --n 3 --steps 1 --see 3", None),
        ("--out_dir x --nesterov false", None),
        ("--seed 1", "the script requires `--out_dir`"),
        ("--out_dir x --out-dir x", "the script has no option `--out-dir`"),
        ("--out_dir x --optim.learning_rate 1", "the script has no option `--optim.learning_rate`"),
        ("--out_dir x --cache 1", "the script has no option `--cache`"),
        ("--out_dir x --seed 1.5", "`--seed 1.5` is not a whole number"),
        ("--out_dir x --nesterov maybe", "`--nesterov maybe` is neither true nor false"),
        ("--out_dir x --nonesterov true", "`--nonesterov` takes no value, got `true`"),
    ],
)
def test_arguments_are_judged(tmp_path: Path, words: str, message: str | None) -> None:
    problems = list(option_problems(read(tmp_path), Args(words=tuple(words.split()))))
    assert [problem.message for problem in problems] == ([] if message is None else [message])


def test_classes_that_a_parser_adds_are_read(tmp_path: Path) -> None:
    script = CLASSES + (
        "    parser = simple_parsing.ArgumentParser()\n"
        "    parser.add_arguments(Optim, dest='optim')\n"
        "    parser.add_arguments(Base, 'base')\n"
        "    args = parser.parse_args()\n"
    )
    assert read(tmp_path, script).names().keys() == {
        "--learning_rate", "--nesterov", "--nonesterov", "--seed", "-h", "--help",
    }  # fmt: skip


PARSER = "parser = simple_parsing.ArgumentParser()"


@pytest.mark.parametrize(
    "lines",
    [
        [PARSER, "parser.add_arguments(Config, 'a')", "parser.add_arguments(Base, 'b')"],
        [PARSER, "parser.add_argument('--other')"],
        ["parse(Config, config_path='x.yaml')"],
        ["parse(Config, prefix='a')"],
    ],
)
def test_parsers_that_are_not_certain_are_left_open(tmp_path: Path, lines: list[str]) -> None:
    lines = [*lines, "parser.parse_args()"] if lines[0] == PARSER else lines
    assert read(tmp_path, dedent(CLASSES) + "\n".join(lines)).is_incomplete


@pytest.mark.parametrize("field", ["flag(True)", "simple_parsing.field(alias='-y', default=1)"])
def test_fields_with_other_options_are_left_open(tmp_path: Path, field: str) -> None:
    script = SCRIPT.replace("n: int = 3", f"n: int = {field}").replace(
        "import choice", "import flag, choice"
    )
    assert read(tmp_path, script).is_incomplete
