from __future__ import annotations

from typing import TYPE_CHECKING

from support.inputs.option_scripts import ARGPARSE, flags, option_names

from safelaunch.analysis.options.read import read_options

if TYPE_CHECKING:
    from pathlib import Path


def test_a_script_without_options_has_none(tmp_path: Path) -> None:
    assert flags(tmp_path, "import torch\nprint(1)\n") is None


def test_a_script_that_cannot_be_read_has_none(tmp_path: Path) -> None:
    assert flags(tmp_path, "def f(:\n") is None
    assert read_options(tmp_path / "missing.py", [tmp_path]) is None


def test_options_that_a_package_of_the_project_adds_are_read(tmp_path: Path) -> None:
    script = """
        import argparse
        from lib.strategy import add_arguments, get_strategy
        if __name__ == "__main__":
            parser = argparse.ArgumentParser()
            parser.add_argument("--lr")
            add_arguments(parser)
            args = parser.parse_args()
    """
    files = {
        "lib__init": "",
        "lib__strategy__init": "from .options import add_arguments\nfrom .make import *\n",
        "lib__strategy__options": """
            def add_arguments(parser):
                group = parser.add_argument_group("engine")
                group.add_argument("--engine_type", choices=["vllm", "sglang"])
        """,
        "lib__strategy__make": "def get_strategy(args): ...\n",
    }
    assert option_names(tmp_path, script, **files) == {"--lr", "--engine_type"}


def test_options_read_as_a_module_is_imported_are_found(tmp_path: Path) -> None:
    options = ARGPARSE.format("pass")
    script = "from options import args\nprint(args)\n"
    assert option_names(tmp_path, script, options=options) == {"--lr"}


def test_a_module_with_a_program_of_its_own_does_not_disturb(tmp_path: Path) -> None:
    other = """
        import argparse
        def parse_args():
            return argparse.ArgumentParser().parse_args()
        if __name__ == "__main__":
            parse_args()
    """
    assert option_names(tmp_path, "import other\n" + ARGPARSE.format("pass"), other=other)


def test_a_changed_argv_anywhere_makes_it_open(tmp_path: Path) -> None:
    text = "import other\n" + ARGPARSE.format("pass")
    result = flags(tmp_path, text, other="import sys\nsys.argv.remove('--x')\n")
    assert result is not None
    assert result.is_incomplete


def test_what_is_added_only_perhaps_is_not_required(tmp_path: Path) -> None:
    text = ARGPARSE.format(
        'if 1 < 2:\n    parser.add_argument("--a", required=True)\n'
        'parser.add_argument("--b", required=True)'
    )
    result = flags(tmp_path, text)
    assert result is not None
    assert [o.display_name for o in result.options if o.required] == ["--b"]


def test_dataclass_fields_are_read_with_their_bases(tmp_path: Path) -> None:
    text = """
        import sys
        from dataclasses import dataclass, field
        from typing import List, Literal, Optional
        from transformers import HfArgumentParser
        from base import Base
        @dataclass
        class Mine(Base):
            model_name: str
            tags: List[str] = field(default_factory=list, metadata={"help": "x"})
            mode: Literal["a", "b"] = "a"
            hidden: int = field(init=False, default=1)
            use_x: bool = True
        def main():
            parser = HfArgumentParser((Mine,))
            if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
                (args,) = parser.parse_json_file(json_file=sys.argv[1])
            else:
                (args,) = parser.parse_args_into_dataclasses()
        main()
    """
    base = "from dataclasses import dataclass\n@dataclass\nclass Base:\n    seed: int = 1\n"
    result = flags(tmp_path, text, base=base)
    assert result is not None
    assert not result.is_incomplete, result.why
    options = {option.names[0].lstrip("-"): option for option in result.options}
    assert options["model_name"].names == ("--model_name", "--model-name")
    assert options["model_name"].required
    assert options["use_x"].names == ("--use_x", "--use-x")
    assert options["no_use_x"].names == ("--no_use_x", "--no-use-x")
    assert options["no_use_x"].is_switch
    assert options["mode"].choices == ("a", "b")
    assert (options["tags"].min_values, options["tags"].max_values) == (1, None)
    assert options["seed"].value_type == "int"
    assert "hidden" not in options


def test_fire_without_a_component_has_the_functions_as_commands(tmp_path: Path) -> None:
    text = "import fire\ndef train(lr=1): ...\ndef evaluate(path): ...\nfire.Fire()\n"
    result = flags(tmp_path, text)
    assert result is not None
    assert set(result.commands) == {"train", "evaluate"}


def test_places_are_those_of_the_calls(tmp_path: Path) -> None:
    result = flags(tmp_path, ARGPARSE.format("pass"))
    assert result is not None
    assert str(result.names()["--lr"].location) == f"{tmp_path}/train.py:4"


def test_deep_nesting_makes_it_open_or_none(tmp_path: Path) -> None:
    deep = "x = " + "f(" * 90 + ")" * 90 + "\n" + "y = " + ".b".join("a" * 900) + "\n"
    result = flags(tmp_path, deep + ARGPARSE.format("pass"))
    assert result is None or result.is_incomplete or result.names()
