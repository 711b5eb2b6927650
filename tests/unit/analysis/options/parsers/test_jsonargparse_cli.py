from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from safelaunch.analysis.options.read import ScriptOptions, read_options
from safelaunch.analysis.options.unknown_options import option_problems
from safelaunch.model import Args

if TYPE_CHECKING:
    from pathlib import Path

# The verdicts are those of jsonargparse 4.53 and 4.28.
HEAD = """
    from typing import List, Optional
    from jsonargparse import CLI
    def train(n: int, name: str, lr: float = 0.1, deep: bool = False, opt: Optional[int] = None):
        pass
    def score(seed: int = 0, note: str = ""):
        pass
    class Job:
        def __init__(self, root: str, seed: int = 0):
            pass
        def fit(self, n: int, k: int = 3):
            pass
        def clean(self):
            pass
    def listed(names: List[int], lr: float = 0.1):
        pass
    def keyword_only(n: int, *, root: str):
        pass
    def anything(n: int, **kwargs):
        pass
"""


def read(folder: Path, call: str) -> ScriptOptions:
    (folder / "train.py").write_text(dedent(HEAD) + call + "\n")
    result = read_options(folder / "train.py", [], seconds=30, cwd=str(folder))
    assert result is not None
    return result


def messages(options: ScriptOptions, words: str) -> list[str]:
    problems = option_problems(options, Args(words=tuple(words.split())))
    return [problem.message for problem in problems]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("CLI(train)", "3 a"),
        ("CLI([train])", "3 --lr 1 a --dee=true"),
        ("CLI(train)", "-3 null --opt null"),
        ("CLI(train)", "--config later.yaml"),
        ("CLI(train)", "--conf later.yaml"),
        ("CLI(train, as_positional=False)", "--n 3 --name=a"),
        ("CLI(score)", ""),
        ("CLI([train, score])", "train 3 a --lr 0.1"),
        ("CLI([train, score])", "--config later.yaml"),
        ("CLI({'go': score})", "go --seed 3"),
        ("CLI(Job)", "--seed 1 data fit 3 --k 4"),
        ("CLI(Job)", "data --seed=1 clean"),
        ("CLI(listed)", "[1,2] --lr 1"),
        ("CLI(keyword_only)", "3 --root x"),
        ("CLI(keyword_only)", "3 x"),
    ],
)
def test_arguments_that_jsonargparse_accepts_pass(tmp_path: Path, call: str, words: str) -> None:
    assert messages(read(tmp_path, call), words) == []


@pytest.mark.parametrize(
    ("call", "words", "message"),
    [
        ("CLI(train)", "3", "the program requires the positional argument `name`"),
        (
            "CLI(train)",
            "3 --name a",
            "the program takes `name` as a positional argument, not as `--name`",
        ),
        (
            "CLI(train)",
            "3 a b",
            "`b`: the program accepts no positional arguments after `n`, `name`",
        ),
        ("CLI(train)", "x a", "`n` takes a whole number, got `x`"),
        ("CLI(train)", "3 a --deep", "`--deep` takes a value, got none"),
        ("CLI(train)", "3 a --lrr 1", "the program has no option `--lrr`"),
        ("CLI(train, as_positional=False)", "--n 3", "the program requires `--name`"),
        ("CLI(score)", "3", "`3`: the program accepts no positional arguments here"),
        ("CLI([train, score])", "scor", "there is no subcommand `scor`"),
        ("CLI([train, score])", "", "a subcommand is missing: one of `train`, `score`"),
        ("CLI([train, score])", "score --lr 1", "the program has no option `--lr`"),
        ("CLI([train, score])", "--seed 1 score", "the program has no option `--seed`"),
        ("CLI(Job)", "fit 3", "there is no subcommand `3`"),
        ("CLI(Job)", "data", "a subcommand is missing: one of `clean`, `fit`"),
        ("CLI(Job)", "data fit", "the program requires the positional argument `n`"),
        ("CLI(Job)", "data fit 3 --seed 1", "the program has no option `--seed`"),
        ("CLI(listed)", "[1,2] --rate 1", "the program has no option `--rate`"),
    ],
)
def test_arguments_that_jsonargparse_refuses_are_named(
    tmp_path: Path, call: str, words: str, message: str
) -> None:
    assert messages(read(tmp_path, call), words) == [message]


def test_unknown_option_with_a_space_in_its_value_may_be_positional(tmp_path: Path) -> None:
    words = ("3", "--title=x y")
    assert list(option_problems(read(tmp_path, "CLI(train)"), Args(words=words))) == []


def test_file_sets_positional_arguments(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text("n: 3\nname: a\n")
    assert messages(read(tmp_path, "CLI(train)"), "--config all.yaml") == []


def test_file_that_lacks_positional_argument_leaves_it_missing(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text("n: 3\n")
    assert messages(read(tmp_path, "CLI(train)"), "--config all.yaml") == [
        "the program requires the positional argument `name`"
    ]


def test_keys_of_file_are_judged_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text("n: 3\nname: a\nrate: 1\n")
    words = ("--config", "all.yaml")
    (problem,) = option_problems(read(tmp_path, "CLI(train)"), Args(words=words))
    assert (problem.message, problem.location.line) == ("the program has no key `rate`", 3)


@pytest.mark.parametrize(
    "call",
    [
        "CLI()",
        "CLI(anything)",
        "CLI(train, args=['3', 'a'])",
        "CLI(train, default_env=True)",
        "CLI(train, set_defaults={'n': 3})",
        "CLI([train, Job])",
        "Job.more = score\nCLI(Job)",
        "setattr(Job, 'more', score)\nCLI(Job)",
        "CLI({'a': {'b': train}})",
        "from jsonargparse import set_parsing_settings\nset_parsing_settings()\nCLI(train)",
    ],
)
def test_what_is_not_explicit_is_left_open(tmp_path: Path, call: str) -> None:
    assert read(tmp_path, call).is_incomplete


@pytest.mark.parametrize(
    "call",
    [
        "import sys\nif len(sys.argv) > 1:\n    CLI(train)",
        "import sys\nimport fire\nif len(sys.argv) > 1:\n    fire.Fire(train)",
    ],
)
def test_call_that_depends_on_the_number_of_arguments_is_left_open(
    tmp_path: Path, call: str
) -> None:
    assert read(tmp_path, call).is_incomplete
