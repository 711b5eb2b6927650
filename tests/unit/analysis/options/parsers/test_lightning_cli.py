from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from safelaunch.analysis.options.read import ScriptOptions, read_options
from safelaunch.analysis.options.unknown_options import option_problems
from safelaunch.analysis.python.libraries import LibraryPaths
from safelaunch.model import Args

if TYPE_CHECKING:
    from pathlib import Path

# The verdicts are those of jsonargparse 4.53 and 4.28 with lightning 2.6.6.
SCRIPT = """
    from lightning.pytorch.cli import LightningCLI
    from lightning.pytorch import LightningModule, LightningDataModule
    class Base(LightningModule):
        def __init__(self, width: int, lr: float = 1e-3, *, deep: bool = False, opts: dict = {}):
            super().__init__()
    class Model(Base):
        pass
    class Data(LightningDataModule):
        def __init__(self, root: str = "x", workers: int | None = None, **kwargs):
            super().__init__()
    if __name__ == "__main__":
        LightningCLI(Model, Data)
"""
# The shape of lightning 2.6: the file of the class, a decorator that keeps its parameters.
TRAINER = """
    class Trainer:
        @_defaults_from_env_vars
        def __init__(self, *, accelerator="auto", devices="auto", callbacks=None, logger=None,
                     max_epochs: Optional[int] = None, benchmark: Optional[bool] = None):
            pass
        def fit(self, model, train_dataloaders=None, datamodule=None, ckpt_path=None): pass
        def validate(self, model=None, dataloaders=None, ckpt_path=None, verbose: bool = True): pass
        def test(self, model=None, dataloaders=None, ckpt_path=None, verbose: bool = True): pass
        def predict(self, model=None, dataloaders=None, return_predictions=None): pass
"""


def read(folder: Path, script: str = SCRIPT) -> ScriptOptions:
    packages = folder / "site-packages"
    trainer = packages / "lightning/pytorch/trainer"
    trainer.mkdir(parents=True)
    (trainer / "trainer.py").write_text(dedent(TRAINER))
    for path in (trainer, trainer.parent, trainer.parent.parent):
        (path / "__init__.py").write_text("")
    (folder / "train.py").write_text(dedent(script))
    result = read_options(
        folder / "train.py",
        [],
        seconds=30,
        cwd=str(folder),
        library_paths=lambda: LibraryPaths((str(packages),)),
    )
    assert result is not None
    return result


def messages(options: ScriptOptions, words: str) -> list[str]:
    problems = option_problems(options, Args(words=tuple(words.split())))
    return [problem.message for problem in problems]


@pytest.mark.parametrize(
    "words",
    [
        "fit --model.width 3 --trainer.max_epochs=3 --data.any 3 --seed_everything 1",
        "fit --model.width=3 --trainer.max_e 3 --trainer.callbacks+=EarlyStopping",
        "fit --model.width=3 --trainer.callbacks.monitor=loss --model.opts.a.b 1",
        "fit --model.width=3 --optimizer Adam --optimizer.lr 0.1 --ckpt_path last",
        "validate --model.width=3 --verbose false --model.deep yes --data.workers null",
        "fit --trainer.nothing 3 --help",
        "fit --model.width=3 --model.lr -1 --print_config",
        'fit --model {"width":3}',
        "--config all.yaml",
    ],
)
def test_arguments_that_lightning_accepts_pass(tmp_path: Path, words: str) -> None:
    assert messages(read(tmp_path), words) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "a subcommand is missing: one of `fit`, `validate`, `test`, `predict`"),
        ("fitt --model.width=3", "there is no subcommand `fitt`"),
        ("fit", "the program requires `--model.width`"),
        ("fit --model.width=3 --max_epochs=3", "the program has no option `--max_epochs`"),
        ("fit --model.width=3 --trainer.gpus=3", "the program has no option `--trainer.gpus`"),
        ("fit --model.width=3 --model.lr.x 3", "the program has no option `--model.lr.x`"),
        ("fit --model.width=3 --verbose true", "the program has no option `--verbose`"),
        ("fit --model.width=3.5", "`--model.width` takes a whole number, got `3.5`"),
        ("fit --model.width=3 --model.lr abc", "`--model.lr` takes a number, got `abc`"),
        ("fit --model.width=3 --model.deep 1", "`--model.deep` takes `true` or `false`, got `1`"),
        ("fit --model.width=3 --model.deep", "`--model.deep` takes a value, got none"),
        ("fit --model.width 3 4", "`--model.width` takes one value, got 2"),
        ("fit x --model.width 3", "`x`: the program accepts no positional arguments here"),
        ("--trainer.devices 2 fit", "`--trainer.devices` is not accepted before the subcommand"),
    ],
)
def test_arguments_that_lightning_refuses_are_named(
    tmp_path: Path, words: str, message: str
) -> None:
    assert messages(read(tmp_path), words) == [message]


def test_option_without_its_group_is_named_in_full(tmp_path: Path) -> None:
    words = ("fit", "--model.width=3", "--max_epochs=3")
    (problem,) = option_problems(read(tmp_path), Args(words=words))
    assert problem.fix == "write `--trainer.max_epochs`"


def test_keys_of_configuration_file_are_judged_with_their_lines(tmp_path: Path) -> None:
    text = "trainer:\n  devices: 2\n  gpus: 3\nmodel: {width: 3}\nfoo: 1\n"
    (tmp_path / "all.yaml").write_text(text)
    problems = option_problems(read(tmp_path), Args(words=("fit", "--config", "all.yaml")))
    assert [(p.message, p.location.line) for p in problems] == [
        ("the program has no key `foo`", 5),
        ("the program has no key `trainer.gpus`", 3),
    ]


def test_key_of_configuration_file_sets_required_parameter(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text("model:\n  width: 3\n")
    assert messages(read(tmp_path), "fit -c all.yaml") == []


def test_file_that_cannot_be_read_may_set_required_parameters(tmp_path: Path) -> None:
    assert messages(read(tmp_path), "fit --config later.yaml") == []


def test_program_without_run_has_no_subcommands(tmp_path: Path) -> None:
    options = read(tmp_path, SCRIPT.replace("(Model, Data)", "(Model, Data, run=False)"))
    assert messages(options, "--model.width=3 --trainer.devices 2") == []
    assert messages(options, "--model.width=3 --trainer.device_count 2") == [
        "the program has no option `--trainer.device_count`"
    ]


def derived(body: str) -> str:
    """Return a script whose class derived from LightningCLI has this body."""
    head, tail = dedent(SCRIPT).split("if __name__")
    call = tail.replace("LightningCLI(", "OwnCLI(")
    return f"{head}class OwnCLI(LightningCLI):\n    {body}\nif __name__{call}"


def test_what_derived_class_adds_to_the_parser_is_accepted(tmp_path: Path) -> None:
    body = (
        "def add_arguments_to_parser(self, parser):\n"
        "        parser.link_arguments('data.workers', 'model.width')\n"
        "        parser.add_argument('--note', default='x')"
    )
    options = read(tmp_path, derived(body))
    assert messages(options, "fit --note x") == []
    assert messages(options, "fit --nothing x") == ["the program has no option `--nothing`"]


@pytest.mark.parametrize(
    "body",
    [
        "def setup_parser(self, *args): pass",
        "def add_arguments_to_parser(self, parser):\n        add_all(parser)",
    ],
)
def test_derived_class_that_changes_the_parser_otherwise_is_left_open(
    tmp_path: Path, body: str
) -> None:
    assert read(tmp_path, derived(body)).is_incomplete


def test_classes_chosen_on_the_command_line_are_left_open(tmp_path: Path) -> None:
    options = read(tmp_path, SCRIPT.replace("(Model, Data)", "()"))
    assert messages(options, "fit --model Model --model.any 3 --data.init_args.x 3") == []


@pytest.mark.parametrize(("passed", "is_open"), [("", False), ("None", False), ("['fit']", True)])
def test_words_that_a_function_passes_on_are_none_or_left_open(
    tmp_path: Path, passed: str, *, is_open: bool
) -> None:
    head = dedent(SCRIPT).partition("if __name__")[0]
    body = "def main(args=None):\n    LightningCLI(Model, Data, args=args)\n"
    assert read(tmp_path, f"{head}{body}main({passed})\n").is_incomplete is is_open


def test_parser_arguments_are_left_open(tmp_path: Path) -> None:
    script = SCRIPT.replace("(Model, Data)", "(Model, Data, parser_kwargs={'default_env': True})")
    assert read(tmp_path, script).is_incomplete


def test_optional_parameter_without_default_is_not_required(tmp_path: Path) -> None:
    script = SCRIPT.replace("width: int,", "width: int | None,")
    assert messages(read(tmp_path, script), "fit") == []


def test_abbreviated_config_option_may_set_required_parameters(tmp_path: Path) -> None:
    assert messages(read(tmp_path), "fit --conf later.yaml") == []
