from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from safelaunch.analysis.options.read import ScriptOptions, read_options
from safelaunch.analysis.options.unknown_options import option_problems
from safelaunch.model import Args

if TYPE_CHECKING:
    from pathlib import Path

# The shape of pretrain_gpt.py and megatron/training of Megatron-LM d98e8a64 (2026-08-22).
FILES = {
    "pretrain.py": """
        from training.restart import maybe_restart
        from training.arguments import parse_and_validate_args
        def add_own(parser):
            parser.add_argument("--own", type=int)
            return parser
        if __name__ == "__main__":
            maybe_restart()
            args = parse_and_validate_args(extra_args_provider=add_own if flag() else None)
    """,
    "training/restart.py": """
        from training.arguments import parse_args
        def maybe_restart():
            if parse_args(ignore_unknown_args=True).restart: ...
    """,
    "training/arguments.py": """
        import argparse
        from training.argument_utils import ArgumentGroupFactory
        from training.config import Logging
        def parse_and_validate_args(extra_args_provider=None, ignore_unknown_args=False):
            return parse_args(extra_args_provider, ignore_unknown_args)
        def parse_args(extra_args_provider=None, ignore_unknown_args=False):
            parser = argparse.ArgumentParser(allow_abbrev=False)
            parser = _add_logging(parser)
            if extra_args_provider is not None:
                parser = extra_args_provider(parser)
            if ignore_unknown_args:
                args, _ = parser.parse_known_args()
            else:
                args = parser.parse_args()
            return args
        def _add_logging(parser):
            exclude = ["hidden"]
            factory = ArgumentGroupFactory(Logging, exclude=exclude)
            group = factory.build_group(parser, "logging")
            group.add_argument("--restart", action="store_true")
            return parser
    """,
    "training/argument_utils.py": """
        class ArgumentGroupFactory:
            def __init__(self, src_cfg_class, exclude=None): ...
            def build_group(self, parser, title=None): ...
    """,
    "training/config.py": """
        from dataclasses import dataclass, field
        from typing import ClassVar, Literal, Optional
        @dataclass
        class Base:
            log_interval: int = 100
            hidden: int = 0
        @dataclass
        class Logging(Base):
            log_params: bool = False
            log_memory: bool = True
            ratio: Optional[float] = None
            ranks: list[int] | None = None
            level: Literal["info", "debug"] = "info"
            style: dict = field(default=None, metadata={"argparse_meta": {"arg_names": ["--look"]}})
            cache: int = field(init=False, default=1)
            kind: ClassVar[str] = "x"
    """,
}


def read(folder: Path, files: dict[str, str] = FILES) -> ScriptOptions:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(dedent(text))
    (folder / "training" / "__init__.py").touch()
    result = read_options(folder / "pretrain.py", [], seconds=30)
    assert result is not None
    return result


def test_options_come_from_groups_dataclasses_and_the_function_that_is_passed(
    tmp_path: Path,
) -> None:
    assert read(tmp_path).names().keys() == {
        *("-h", "--help", "--own", "--restart", "--log-interval", "--log-params"),
        *("--no-log-memory", "--disable-log-memory", "--ratio", "--ranks", "--level", "--look"),
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--log-interval 5 --log-params --no-log-memory --ranks 1 2 --look a b --own 1", None),
        ("--log-intervall 5", "the script has no option `--log-intervall`"),
        ("--log-memory", "the script has no option `--log-memory`"),
        ("--hidden 1", "the script has no option `--hidden`"),
        ("--log-interval x", "`--log-interval x` is not a whole number"),
        ("--ratio x", "`--ratio x` is not a number"),
        ("--log-params true", "`--log-params` takes no value, got `true`"),
    ],
)
def test_arguments_are_judged(tmp_path: Path, words: str, message: str | None) -> None:
    problems = list(option_problems(read(tmp_path), Args(words=tuple(words.split()))))
    assert [problem.message for problem in problems] == ([] if message is None else [message])


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("pretrain.py", "ider=add_own if flag() else None", "ider=make"),
        ("pretrain.py", "extra_args_provider=", "ignore_unknown_args=True, extra_args_provider="),
        ("pretrain.py", "extra_args_provider=add_own if flag() else None", "**options"),
        ("training/config.py", "(Base)", "(unknown.Base)"),
        ("training/config.py", '{"arg_names": ["--look"]}', "look()"),
        ("training/arguments.py", "factory = Arg", "factory = None\n    factory = Arg"),
    ],
)
def test_what_is_not_explicit_is_open(tmp_path: Path, name: str, old: str, new: str) -> None:
    text = dedent(FILES[name])
    assert old in text
    assert read(tmp_path, FILES | {name: text.replace(old, new)}).is_incomplete


def test_path_that_is_appended_leaves_the_options_certain(tmp_path: Path) -> None:
    text = "import sys\ndef f(): sys.path.append(computed())\n"
    config = text + dedent(FILES["training/config.py"])
    assert not read(tmp_path, FILES | {"training/config.py": config}).is_incomplete
    config = config.replace("append(", "insert(0, ")
    assert read(tmp_path, FILES | {"training/config.py": config}).is_incomplete


def test_condition_of_a_helper_that_is_called_twice_is_open(tmp_path: Path) -> None:
    text = dedent(FILES["training/arguments.py"])
    text = text.replace("parser = _add_logging(parser)", "more(parser, True); more(other(), False)")
    text += "def more(p, flag):\n    if flag: p.add_argument('--more')\n"
    text += "def other(): return argparse.ArgumentParser()\n"
    options = read(tmp_path, FILES | {"training/arguments.py": text})
    assert options.is_incomplete or "--more" in options.names()
