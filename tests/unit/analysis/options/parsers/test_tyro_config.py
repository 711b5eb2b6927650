from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.inputs.option_scripts import script_options

from safelaunch.analysis.options.unknown_options import option_problems
from safelaunch.model import Args

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.analysis.options.read import ScriptOptions

# The verdicts are those of tyro 1.0.17.
SCRIPT = """
    import enum
    from dataclasses import dataclass, field
    from pathlib import Path
    from typing import Literal
    import tyro
    class Mode(enum.Enum):
        FAST = 1
    @dataclass
    class Optim:
        learning_rate: float = 1e-4
        use_nesterov: bool = False
    @dataclass
    class Base:
        seed: int = 0
    @dataclass
    class Config(Base):
        out_dir: Path
        steps: int | None = None
        mode: Mode = Mode.FAST
        kind: Literal["a", "b"] = "a"
        betas: tuple[float, float] = (0.9, 0.99)
        optim: Optim = field(default_factory=Optim)
        cache: int = field(init=False, default=1)
    if __name__ == "__main__":
        config = tyro.cli(Config)
"""


def read(folder: Path, script: str = SCRIPT) -> ScriptOptions:
    return script_options(folder, script)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--out-dir x", None),
        ("--out_dir x --optim.learning_rate 1 --optim.use-nesterov --betas 1 2", None),
        ("--out-dir=x --optim.no-use_nesterov --seed -1", None),
        ("--out-dir x --seed a --seed 1", None),
        ("--seed 1", "the script requires `--out-dir`"),
        ("--out-dir x --learning-rate 1", "the script has no option `--learning-rate`"),
        ("--out-dir x --optim.lr 1", "the script has no option `--optim.lr`"),
        ("--out-dir x --see 1", "the script has no option `--see`"),
        ("--out-dir x --cache 1", "the script has no option `--cache`"),
        ("--out-dir x --seed 1.5", "`--seed 1.5` is not a whole number"),
        (
            "--out-dir x --optim.use-nesterov True",
            "`--optim.use-nesterov` takes no value, got `True`",
        ),
    ],
)
def test_arguments_are_judged(tmp_path: Path, words: str, message: str | None) -> None:
    problems = list(option_problems(read(tmp_path), Args(words=tuple(words.split()))))
    assert [problem.message for problem in problems] == ([] if message is None else [message])


def test_parameters_of_a_function_are_options(tmp_path: Path) -> None:
    script = "import tyro\ndef main(lr: float, *, fast: bool = True): ...\ntyro.cli(main)\n"
    names = read(tmp_path, script).names().keys()
    assert names == {"--lr", "--fast", "--no-fast", "-h", "--help"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("optim: Optim = ", "optim: Optim | Base = "),
        ("steps: int | None", "steps: Annotated[int, 1]"),
        ("steps: int | None", "steps: dict[str, int]"),
        ("steps: int | None", "steps: library.Config"),
        ("steps: int | None", "steps: 'int'"),
        ("steps: int", "_steps: int"),
        ("(Base):", "(library.Base):"),
        ("@dataclass\n    class Optim", "@library.register\n    class Optim"),
        ("tyro.cli(Config)", "tyro.cli(Config, config=(tyro.conf.FlagConversionOff,))"),
        ("tyro.cli(Config)", "tyro.cli(Config, args=words)"),
        ("tyro.cli(Config)", "tyro.extras.overridable_config_cli(configs)"),
    ],
)
def test_what_is_not_explicit_is_open(tmp_path: Path, old: str, new: str) -> None:
    assert old in SCRIPT
    assert read(tmp_path, SCRIPT.replace(old, new)).is_incomplete
