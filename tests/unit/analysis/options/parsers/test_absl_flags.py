from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.inputs.option_scripts import script_options

from safelaunch.analysis.options.unknown_options import option_problems
from safelaunch.model import Args

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.analysis.options.read import ScriptOptions

# The verdicts are those of absl-py 2.5.1.
SCRIPT = """
    from absl import app, flags
    import numpy, common
    flags.DEFINE_string("data", None, "help", required=True)
    flags.DEFINE_integer("steps", 3, "help", short_name="s")
    flags.DEFINE_boolean("amp", False, "help")
    flags.DEFINE_enum("mode", "train", ["train", "eval"], "help")
    flags.DEFINE_alias("input", "data")
    def main(argv):
        del argv
    if __name__ == "__main__":
        app.run(main)
"""
COMMON = """
    from absl import flags
    flags.DEFINE_float("rate", 0.1, "help")
"""


def read(folder: Path, script: str = SCRIPT) -> ScriptOptions:
    return script_options(folder, script, common=COMMON)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--data x", None),
        ("-data=x --steps 0x10 -s 3 --noamp --rate 1e-3 --mode eval --verbosity 1", None),
        ("--input x --amp=T --log_dir --data word", None),
        ("--data x --any_flag --help", None),
        ("--data x -- --any_flag", None),
        ("--flagfile=x.txt", None),
        ("--steps 3", "the program requires `--data`"),
        ("--data x --step 3", "the program has no flag `--step`"),
        ("--data x --no-amp", "the program has no flag `--no-amp`"),
        ("--data x --steps 1.5", "`--steps` takes a whole number, got `1.5`"),
        ("--data x --rate fast", "`--rate` takes a number, got `fast`"),
        ("--data x --amp=yes", "`--amp` takes `true` or `false`, got `yes`"),
        ("--data x --noamp=1", "`--noamp=1` takes no value"),
        ("--data x --mode test", "`--mode` takes one of `train`, `eval`, got `test`"),
        ("--data x --steps", "`--steps` takes a value, got none"),
    ],
)
def test_words_are_judged(tmp_path: Path, words: str, message: str | None) -> None:
    problems = list(option_problems(read(tmp_path), Args(words=tuple(words.split()))))
    assert [problem.message for problem in problems] == ([] if message is None else [message])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import numpy, common", "import numpy, tensorflow"),
        ("import numpy, common", "from torch.utils.tensorboard import SummaryWriter"),
        ("import numpy, common", "import importlib\n    importlib.import_module(str(3))"),
        ('DEFINE_integer("steps"', "DEFINE_integer(str(3)"),
        ("flags.DEFINE_boolean", "flags.DEFINE_flag"),
        ("app.run(main)", "app.run(main, argv=['x'])"),
        ("flags.DEFINE_boolean", "common.DEFINE_boolean"),
        ("def main", "define = flags.DEFINE_list\n    def main"),
        ("def main", "common.add(flags)\n    def main"),
    ],
)
def test_flags_that_may_come_from_elsewhere_are_left_open(
    tmp_path: Path, old: str, new: str
) -> None:
    assert read(tmp_path, SCRIPT.replace(old, new)).is_incomplete


def test_flag_with_a_default_is_not_required(tmp_path: Path) -> None:
    script = SCRIPT.replace("def main", "flags.mark_flag_as_required('steps')\n    def main")
    assert list(option_problems(read(tmp_path, script), Args(words=("--data", "x")))) == []
