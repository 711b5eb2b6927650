"""The commands of typer (0.29.2) and of groups of click (8.5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.inputs.option_scripts import script_options

from safelaunch.analysis.options.unknown_options import option_problems
from safelaunch.analysis.python.trees import Unclear
from safelaunch.model import Args

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.analysis.options.read import ScriptOptions

TYPER = """
    import enum
    from typing import Annotated, List, Optional
    import typer
    class Mode(str, enum.Enum):
        FAST = "fast"
        SLOW = "slow"
    app = typer.Typer(help="x")
    @app.command()
    def train_all(
        ctx: typer.Context,
        data: str,
        lr: float = 1e-4,
        use_ema: bool = False,
        mode: Mode = Mode.FAST,
        tags: List[int] = [],
        name: str = typer.Option(..., "--name", "-n"),
        out: Annotated[Optional[str], typer.Option("--out-dir", envvar="OUT")] = None,
    ): ...
    if __name__ == "__main__":
        app()
"""
SECOND = """
    @app.command("eval")
    def evaluate(steps: int = 1): ...
    if __name__"""
GROUP = """
    import click
    @click.group()
    @click.option("--verbose", is_flag=True)
    def cli(verbose): ...
    @cli.command()
    @click.option("--lr", type=float)
    def train_model(lr): ...
    @cli.command("eval")
    @click.option("--steps", type=int, required=True)
    def evaluate(steps): ...
    @cli.command(name=computed())
    def other(): ...
    if __name__ == "__main__":
        cli()
"""


def read(folder: Path, script: str) -> ScriptOptions:
    return script_options(folder, script)


def messages(folder: Path, script: str, words: str) -> list[str]:
    options = read(folder, script)
    assert not options.is_incomplete, options.why
    return [p.message for p in option_problems(options, Args(words=tuple(words.split())))]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("d --name x --lr 1 --use-ema --mode slow --tags 1 --tags 2 --out-dir o", None),
        ("d -n x --no-use-ema --install-completion bash", None),
        ("d --name x --lr a --lr 1", None),
        ("d", "the script requires `--name`"),
        ("d --name x --learning 1", "the script has no option `--learning`"),
        ("d --name x --use_ema", "the script has no option `--use_ema`"),
        ("d --name x --out o", "the script has no option `--out`"),
        ("d --name x --lr a", "`--lr a` is not a number"),
        ("d --name x --mode fas", "`--mode fas` is not one of its choices"),
    ],
)
def test_only_command_of_typer_needs_no_name(
    tmp_path: Path, words: str, message: str | None
) -> None:
    assert messages(tmp_path, TYPER, words) == ([] if message is None else [message])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train-all d --name x --steps 1", "the script has no option `--steps`"),
        ("eval --steps 1", None),
        ("eval --lr 1", "the script has no option `--lr`"),
    ],
)
def test_first_word_selects_a_command_of_typer(
    tmp_path: Path, words: str, message: str | None
) -> None:
    script = TYPER.replace("\n    if __name__", SECOND)
    assert messages(tmp_path, script, words) == ([] if message is None else [message])


def test_typer_run_runs_a_function(tmp_path: Path) -> None:
    script = "import typer\ndef main(lr: float = 1.0): ...\ntyper.run(main)\n"
    assert messages(tmp_path, script, "--lr 1") == []
    assert messages(tmp_path, script, "--steps 1") == ["the script has no option `--steps`"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train-model --lr 1", None),
        ("eval --steps 1", None),
        ("train-model --steps 1", "the script has no option `--steps`"),
        ("eval", "the script requires `--steps`"),
    ],
)
def test_first_word_selects_a_command_of_a_click_group(
    tmp_path: Path, words: str, message: str | None
) -> None:
    assert messages(tmp_path, GROUP, words) == ([] if message is None else [message])


@pytest.mark.parametrize("words", ["--verbose eval --lr 1", "other --lr 1", "evil", ""])
def test_command_that_is_not_read_is_unclear(tmp_path: Path, words: str) -> None:
    with pytest.raises(Unclear):
        messages(tmp_path, GROUP, words)


@pytest.mark.parametrize(
    ("script", "old", "new"),
    [
        (TYPER, "app = typer.Typer(help", "app = typer.Typer(context_settings"),
        (TYPER, "lr: float", "lr"),
        (TYPER, "lr: float", "lr: 'float'"),
        (TYPER, "data: str,", "data: Annotated[str, library.Option()],"),
        (TYPER, '"--name", "-n"', "*names"),
        (TYPER, "@app.command()", "@app.command(context_settings={})"),
        (TYPER, "    app()", "    app.add_typer(other)\n        app()"),
        (GROUP, "@click.group()", "@click.group(chain=True)"),
    ],
)
def test_what_is_not_explicit_is_open(tmp_path: Path, script: str, old: str, new: str) -> None:
    assert old in script
    assert read(tmp_path, script.replace(old, new)).is_incomplete
