from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from safelaunch.analysis.options.read import ScriptOptions, read_options
from safelaunch.analysis.options.unknown_options import option_problems
from safelaunch.model import Args

if TYPE_CHECKING:
    from pathlib import Path

# The verdicts are those of jsonargparse 4.53 (and of 4.28, which has no `action="config"`).
HEAD = """
    from typing import List, Optional
    from jsonargparse import ActionConfigFile, ActionYesNo, ArgumentParser
    class Model:
        def __init__(self, lr: float, n: int = 3, on: bool = True, sizes: List[int] = [1]):
            pass
    class Open:
        def __init__(self, z: int = 1, **kwargs):
            pass
    class Job:
        def fit(self, k: int = 2):
            pass
    def build(x: int, flag: bool = False):
        pass
    def make_parser():
        p = ArgumentParser(description="d")
        p.add_argument("--config", action=ActionConfigFile)
        p.add_argument("-b", "--batch-size", type=int, default=3)
        p.add_argument("--names", nargs="+", default=[])
        p.add_argument("--pair", nargs=2, type=int)
        p.add_argument("--kind", choices=["aa", "bb"])
        group = p.add_argument_group("data")
        group.add_argument("--data.root", required=True)
        group.add_argument("--data.deep", action="store_true")
        p.add_class_arguments(Model, "model", skip={"sizes"})
        p.add_class_arguments(Open, nested_key="open")
        p.add_function_arguments(build, "build")
        p.add_method_arguments(Job, "fit", "job")
        p.add_subclass_arguments(Model, "sub", required=False)
        p.link_arguments("model.n", "job.k")
        return p
"""
NEEDED = "--data.root x --model.lr 0.1 --build.x 1"
PARSER = "parser = make_parser()\nparser.parse_args()"
COMMANDS = """\
fit = ArgumentParser()
fit.add_argument("--steps", type=int, required=True)
score = ArgumentParser()
score.add_argument("path")
parser = ArgumentParser()
parser.add_argument("--seed", type=int, default=1)
commands = parser.add_subcommands()
commands.add_subcommand("fit", fit)
commands.add_subcommand("score", score)
args = parser.parse_args()
"""
PLACES = """\
parser = ArgumentParser()
parser.add_argument("source")
parser.add_argument("--deep", action="store_true")
parser = parser.parse_args()
"""


def read(folder: Path, call: str) -> ScriptOptions:
    (folder / "train.py").write_text(dedent(HEAD) + call + "\n")
    result = read_options(folder / "train.py", [], seconds=30, cwd=str(folder))
    assert result is not None
    return result


def messages(options: ScriptOptions, words: str) -> list[str]:
    problems = option_problems(options, Args(words=tuple(words.split())))
    return [problem.message for problem in problems]


ACCEPTED = [
    (PARSER, NEEDED),
    (PARSER, "--config later.yaml"),
    (PARSER, f"{NEEDED} -b 3 --batch-size=4 -b5 --batch 3"),
    (PARSER, f"{NEEDED} --names a b --pair 1 2 --kind aa --data.deep"),
    (PARSER, f"{NEEDED} --model.n=3 --model.on false --build.flag true --open.other 1"),
    (PARSER, f"{NEEDED} --sub Model --sub.init_args.n 3 --sub.n 3"),
    (COMMANDS, "--seed 3 fit --steps 1"),
    (COMMANDS, "score a"),
    (PLACES, "--deep a"),
    (PLACES, "a --deep"),
]


@pytest.mark.parametrize(("call", "words"), ACCEPTED)
def test_what_the_parser_accepts_is_accepted(tmp_path: Path, call: str, words: str) -> None:
    assert messages(read(tmp_path, call), words) == []


REFUSED = {
    (PARSER, f"{NEEDED} --batch_size 3"): "the program has no option `--batch_size`",
    (PARSER, f"{NEEDED} --model.m 3"): "the program has no option `--model.m`",
    (PARSER, f"{NEEDED} --model.sizes 3"): "the program has no option `--model.sizes`",
    (PARSER, f"{NEEDED} --batch-size x"): "`--batch-size` takes a whole number, got `x`",
    (PARSER, f"{NEEDED} --model.lr x"): "`--model.lr` takes a number, got `x`",
    (PARSER, f"{NEEDED} --build.flag"): "`--build.flag` takes a value, got none",
    (PARSER, f"{NEEDED} --names"): "`--names` takes 1 to any number of values, got 0",
    (PARSER, f"{NEEDED} --pair 1"): "`--pair` takes 2 values, got 1",
    (PARSER, f"{NEEDED} --data.deep=true"): "`--data.deep` takes no value, got 1",
    (PARSER, f"{NEEDED} --kind cc"): "`--kind` takes one of `aa`, `bb`, got `cc`",
    (PARSER, "--model.lr 0.1 --build.x 1"): "the program requires `--data.root`",
    (PARSER, "--data.root x --build.x 1"): "the program requires `--model.lr`",
    (COMMANDS, "fit"): "the program requires `--steps`",
    (COMMANDS, "fti --steps 1"): "there is no subcommand `fti`",
    (COMMANDS, "--steps 1 fit"): "the program has no option `--steps`",
}


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_what_the_parser_refuses_is_a_problem(tmp_path: Path, call: str, words: str) -> None:
    assert messages(read(tmp_path, call), words) == [REFUSED[call, words]]


@pytest.mark.parametrize(
    "call",
    [
        "parser = ArgumentParser()\nparser.add_argument('--x', action=ActionYesNo)\n",
        "parser = ArgumentParser()\nfor each in names(): parser.add_argument(f'--{each}')\n",
        "parser = ArgumentParser()\nregister(parser)\n",
        "parser = ArgumentParser(parents=[make_parser()])\n",
        "parser = ArgumentParser()\nparser.add_class_arguments(Open)\n",
        "parser = ArgumentParser()\nparser.add_class_arguments(Model, 'm', as_positional=True)\n",
    ],
)
def test_a_parser_that_is_not_explicit_is_not_judged(tmp_path: Path, call: str) -> None:
    assert read(tmp_path, call + "parser.parse_args()").is_incomplete
