from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from safelaunch.analysis.options.read import ScriptOptions, read_options
from safelaunch.analysis.options.unknown_options import OptionProblem, option_problems
from safelaunch.config.schema.types import expand_option
from safelaunch.model import Args

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
    import argparse
    p = argparse.ArgumentParser()
    p.add_argument("--learning_rate", type=float, default=1e-5)
    p.add_argument("--train_batch_size", "-b", type=int)
    p.add_argument("--kl", choices=["k1", "k2"], default="k1")
    p.add_argument("--level", type=int, choices=[1, 2])
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--shuffle", type=bool, default=True)
    p.add_argument("--debug", type=bool, default=False)
    p.add_argument("--betas", type=float, nargs=2)
    p.add_argument("--tags", nargs="*")
    p.add_argument("--custom", action=Own)
    p.add_argument("--output_dir", required=True)
    args = p.parse_args()
"""
FIRE = """
    import fire
    def train(base_model, lr: float = 1e-4, freeze_LLM: bool = False, category: str = ""): ...
    if __name__ == "__main__":
        fire.Fire(train)
"""
HF = """
    from dataclasses import dataclass
    from typing import Optional
    from transformers import HfArgumentParser
    @dataclass
    class A:
        model_name: str
        use_lora: bool = False
        shuffle: Optional[bool] = True
        steps: int = 1
    (args,) = HfArgumentParser(A).parse_args_into_dataclasses()
"""
CLICK = """
    import click
    @click.command()
    @click.option("--lr", type=float, required=True)
    @click.option("--mode", type=click.Choice(["a", "b"]))
    @click.option("--shout/--no-shout")
    def main(**kw): ...
    main()
"""


def read(folder: Path, text: str) -> ScriptOptions:
    (folder / "train.py").write_text(dedent(text))
    result = read_options(folder / "train.py", [], seconds=30)
    assert result is not None
    assert not result.is_incomplete, result.why
    return result


def problems(folder: Path, text: str, words: str) -> list[OptionProblem]:
    return list(option_problems(read(folder, text), Args(words=tuple(words.split()))))


def mapping(**options: object) -> Args:
    pairs = tuple((k, v if isinstance(v, bool) else (str(v),)) for k, v in options.items())
    words = tuple(word for key, values in pairs for word in expand_option(key, values))
    return Args(options=pairs, words=words, is_mapping=True)


def test_a_blank_behind_a_backslash_is_told_as_such(tmp_path: Path) -> None:
    script = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--b')\np.parse_args()\n"
    )
    (tmp_path / "train.py").write_text(script)
    options = read_options(tmp_path / "train.py", [], seconds=30)
    assert options is not None
    (problem,) = option_problems(options, Args(words=("--b", "1", " ")))
    assert problem.fix == "remove the blank behind a `\\` at a line's end"


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--learning_rate 1e-3 --train_batch_size=8 --kl k2",
        "-b 8 -b8 --learn 2",
        "--bf16 --betas 0.9 0.95 --tags a b c --level 1",
        "--learning_rate -1 --custom a b --tags",
        "--shuffle True --debug=",
    ],
)
def test_good_words_are_left_alone(tmp_path: Path, words: str) -> None:
    assert problems(tmp_path, SCRIPT, f"{words} --output_dir x") == []


@pytest.mark.parametrize(
    ("words", "option", "message", "fix"),
    [
        (
            "--lerning_rate 1",
            "--lerning_rate",
            "the script has no option `--lerning_rate`",
            "did you mean `--learning_rate`?",
        ),
        (
            "--num_workers 4",
            "--num_workers",
            "the script has no option `--num_workers`",
            "remove `--num_workers`",
        ),
        (
            "--learning-rate 1",
            "--learning-rate",
            "the script has no option `--learning-rate`",
            "did you mean `--learning_rate`?",
        ),
        ("--kl k9", "--kl", "`--kl k9` is not one of its choices", "one of `k1`, `k2`"),
        ("--level 3", "--level", "`--level 3` is not one of its choices", "one of `1`, `2`"),
        (
            "--bf16 True",
            "--bf16",
            "`--bf16` takes no value, got `True`",
            "write `--bf16` without a value",
        ),
        ("--bf16=False", "--bf16", "`--bf16` takes no value, got `False`", "remove `--bf16`"),
        (
            "--shuffle False",
            "--shuffle",
            "`--shuffle False` is read as true: argparse's `type=bool` reads any text as true",
            "write `--shuffle=`",
        ),
        (
            "--debug False",
            "--debug",
            "`--debug False` is read as true: argparse's `type=bool` reads any text as true",
            "remove `--debug`",
        ),
        ("-b 1e3", "-b", "`-b 1e3` is not a whole number", "write 1000"),
        (
            "--learning_rate high",
            "--learning_rate",
            "`--learning_rate high` is not a number",
            "give it a number",
        ),
        (
            "--betas 1",
            "--betas",
            "`--betas` takes 2 values, got 1",
            "give `--betas` 2 values, or remove it",
        ),
        ("-b --bf16", "-b", "`-b` takes a value, got none", "give `-b` a value, or remove it"),
        ("-b 1 2", "-b", "`-b` takes 1 value, got 2", "remove `2`"),
        (
            "--l 1",
            "--l",
            "`--l` is ambiguous: `--learning_rate` or `--level`",
            "write the option in full",
        ),
    ],
)  # fmt: skip
def test_a_bad_word_is_named_with_its_cure(
    tmp_path: Path, words: str, option: str, message: str, fix: str
) -> None:
    result = problems(tmp_path, SCRIPT, f"--output_dir x {words}")
    assert [(p.option, p.message, p.fix) for p in result] == [(option, message, fix)]


def test_a_missing_option_is_named(tmp_path: Path) -> None:
    (result,) = option_problems(read(tmp_path, SCRIPT), mapping(learning_rate=1))
    assert result.message == "the script requires `--output_dir`"
    assert result.fix == "add `output_dir:` with its value"
    assert str(result.location) == f"{tmp_path}/train.py:14"


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({"bf16": "True"}, "write `bf16: true`"),
        ({"shuffle": "False"}, 'write `shuffle: ""`'),
        ({"train_batch_size": True}, "give `--train_batch_size` a value, or remove it"),
    ],
)
def test_a_mapping_is_told_what_to_write_in_it(
    tmp_path: Path, options: dict[str, object], fix: str
) -> None:
    (result,) = option_problems(read(tmp_path, SCRIPT), mapping(output_dir="x", **options))
    assert result.fix == fix


def test_a_word_by_itself_has_no_place(tmp_path: Path) -> None:
    (result,) = problems(tmp_path, SCRIPT, "x.yaml --output_dir x")
    assert result.message == "`x.yaml`: the script accepts no positional arguments"


def test_nothing_is_said_of_open_options(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import tyro\ntyro.cli(print)\n")
    result = read_options(tmp_path / "train.py", [])
    assert result is not None
    assert list(option_problems(result, Args(words=("--no", "--such", "thing")))) == []


@pytest.mark.parametrize("words", ["--help", "-- x", "--output_dir=--", "@file"])
def test_nothing_is_said_after_words_that_change_the_rules(tmp_path: Path, words: str) -> None:
    assert problems(tmp_path, SCRIPT, f"--nothing {words}") == []


@pytest.mark.parametrize("words", ["--version v1", "-h 32", "--version"])
def test_an_own_option_by_the_name_of_help_or_version_ends_nothing(
    tmp_path: Path, words: str
) -> None:
    own = SCRIPT.replace("ArgumentParser()", "ArgumentParser(add_help=False)").replace(
        "args =", 'p.add_argument("--version", "-h")\n    args ='
    )
    shown = problems(tmp_path, own, f"--output_dir x --nothing 1 {words}")
    assert "the script has no option `--nothing`" in [problem.message for problem in shown]


@pytest.mark.parametrize(
    "words",
    [
        "--base_model x --lr 1e-3 --freeze-LLM False",
        "x --nofreeze_LLM -l 1 -category=a",
        "x 1e-3 True books",
        "--base_model=x --freeze_LLM",
    ],
)
def test_fire_takes_a_parameter_in_every_spelling(tmp_path: Path, words: str) -> None:
    assert problems(tmp_path, FIRE, words) == []


def test_fire_refuses_an_unknown_flag_only_at_the_end(tmp_path: Path) -> None:
    (result,) = problems(tmp_path, FIRE, "--base_model x --temperature 1.0")
    assert result.option == "--temperature"
    assert "runs everything first and then exits with code 2" in result.message


def test_fire_requires_what_has_no_default(tmp_path: Path) -> None:
    (result,) = problems(tmp_path, FIRE, "--lr 1")
    assert result.message == "the script requires `--base_model`"


def test_the_first_word_chooses_among_fires_commands(tmp_path: Path) -> None:
    text = "import fire\ndef train(lr=1): ...\ndef test(path): ...\nfire.Fire()\n"
    assert problems(tmp_path, text, "train --lr 1") == []
    assert problems(tmp_path, text, "other --lr 1") == []
    (result,) = problems(tmp_path, text, "train --rl 1")
    assert result.fix == "did you mean `--lr`?"


@pytest.mark.parametrize(
    "words",
    [
        "--model_name x --use_lora --shuffle no",
        "--model-name x --use-lora True --no_shuffle",
        "config.json",
        "job.yaml",
    ],
)
def test_dataclasses_take_both_spellings_and_truth_words(tmp_path: Path, words: str) -> None:
    assert problems(tmp_path, HF, words) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "the script requires `--model_name`"),
        ("--model_name x --use_lora maybe", "`--use_lora maybe` is neither true nor false"),
        ("--model_name x --steps 1.5", "`--steps 1.5` is not a whole number"),
        ("--model_name x --no_use_lora", "the script has no option `--no_use_lora`"),
    ],
)
def test_dataclasses_refuse(tmp_path: Path, words: str, message: str) -> None:
    (result,) = problems(tmp_path, HF, words)
    assert result.message == message


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("--lr 1 --mode a --no-shout", 0),
        ("--lr -1", 0),
        ("--mode a", 1),
        ("--lr 1 --mode c", 1),
        ("--lr 1 --mod a", 1),
        ("--lr x", 1),
        ("--lr 1 --shout=1", 1),
    ],
)
def test_click_options_are_judged(tmp_path: Path, words: str, count: int) -> None:
    assert len(problems(tmp_path, CLICK, words)) == count
