from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.inputs.option_scripts import ARGPARSE, flags, option_names

if TYPE_CHECKING:
    from pathlib import Path

CLOSED = {
    "at the top": ARGPARSE.format("pass"),
    "in main": """
        from argparse import ArgumentParser
        def main(argv=None):
            p = ArgumentParser("train", add_help=False)
            p.add_argument("--lr")
            return p.parse_args(argv)
        if __name__ == "__main__":
            main()
    """,
    "given the words": """
        import argparse, sys
        def main(argv):
            p = argparse.ArgumentParser()
            p.add_argument("--lr")
            args = p.parse_args(argv)
        if __name__ == "__main__":
            sys.exit(main(sys.argv[1:]))
    """,
    "a function makes the parser": """
        import argparse
        def get_args_parser():
            parser = argparse.ArgumentParser("pretrain", add_help=False)
            parser.add_argument("--lr", type=float)
            return parser
        if __name__ == "__main__":
            args = get_args_parser()
            args = args.parse_args()
    """,
    "parents": """
        import argparse
        def get_args_parser():
            parser = argparse.ArgumentParser(add_help=False)
            parser.add_argument("--lr", type=float)
            return parser
        if __name__ == "__main__":
            parser = argparse.ArgumentParser("x", parents=[get_args_parser()])
            args = parser.parse_args()
    """,
    "groups": """
        import argparse
        def add(parser):
            group = parser.add_argument_group("a")
            group.add_argument("--lr")
            group = parser.add_argument_group("b").add_mutually_exclusive_group()
            return parser
        def get():
            parser = argparse.ArgumentParser()
            parser = add(parser)
            args = parser.parse_args()
            return args
        def main():
            args = get()
        main()
    """,
    "recorded": """
        import argparse
        from torch.distributed.elastic.multiprocessing.errors import record
        @record
        def main():
            parser = argparse.ArgumentParser()
            parser.add_argument("--lr")
            parser.set_defaults(lr=1)
            with open("x"):
                print(vars(parser.parse_args()))
        try:
            main()
        finally:
            pass
    """,
    "sys.argv is shown": """
        import argparse, sys
        print(" ".join(sys.argv), sys.argv[0], f"{sys.argv}")
        if len(sys.argv) == 1:
            sys.exit(1)
        parser = argparse.ArgumentParser()
        parser.add_argument("--lr")
        parser.parse_args(sys.argv[1:])
    """,
    "dead code": """
        import argparse
        def old():
            return argparse.ArgumentParser().parse_known_args()
        def new():
            p = argparse.ArgumentParser()
            p.add_argument("--lr")
            return p.parse_args()
        new()
    """,
    "HfArgumentParser": """
        from dataclasses import dataclass
        from transformers import HfArgumentParser
        @dataclass
        class Arguments:
            lr: float = 1.0
        parser = HfArgumentParser(Arguments)
        (args,) = parser.parse_args_into_dataclasses()
    """,
    "fire": """
        from fire import Fire
        def train(lr: float = 1.0): ...
        if __name__ == "__main__":
            Fire(train)
    """,
    "click": """
        import click
        @click.command()
        @click.option("--lr", type=float)
        def main(lr): ...
        if __name__ == "__main__":
            main()
    """,
}


@pytest.mark.parametrize("text", CLOSED.values(), ids=CLOSED)
def test_a_clear_script_is_read(tmp_path: Path, text: str) -> None:
    assert option_names(tmp_path, text) == {"--lr"}


OPEN = {
    "parse_known_args": ARGPARSE.replace("parse_args", "parse_known_args"),
    "subcommands": ARGPARSE.format("parser.add_subparsers()"),
    "a library adds": "import library" + ARGPARSE.format("parser = library.add_arguments(parser)"),
    "a loop adds": ARGPARSE.format('[parser.add_argument(f"--{n}") for n in "ab"]'),
    "kept elsewhere": ARGPARSE.format("add = parser.add_argument"),
    "stored": ARGPARSE.format("self.parser = parser"),
    "in a list": ARGPARSE.format("all = [parser]"),
    "sys.argv changed": "import sys" + ARGPARSE.format("sys.argv = sys.argv[:2]"),
    "sys.argv popped": "import sys" + ARGPARSE.format("x = sys.argv.pop(1)"),
    "sys.argv asked": "import sys" + ARGPARSE.format("x = '--debug' in sys.argv"),
    "other words": ARGPARSE.replace("parse_args()", "parse_args(['--lr', '1'])"),
    "prefix characters": ARGPARSE.replace("Parser()", "Parser(fromfile_prefix_chars='@')"),
    "own class": ARGPARSE.replace(
        "parser =", "class P(argparse.ArgumentParser): ...\nparser ="
    ).replace("parser = argparse.ArgumentParser()", "parser = P()"),
    "only perhaps": """
        import argparse, os
        if os.environ.get("X"):
            parser = argparse.ArgumentParser()
            args = parser.parse_args()
    """,
    "two": ARGPARSE + "other = argparse.ArgumentParser().parse_args()\n",
    "method": """
        import argparse
        class Options:
            def __init__(self):
                self.parser = argparse.ArgumentParser()
            def parse(self):
                return self.parser.parse_args()
        Options().parse()
    """,
    "tyro": "import tyro\ndef main(lr: float, **more): ...\ntyro.cli(main)\n",
    "absl": "from absl import app, flags\nimport tensorflow\napp.run(print)\n",
    "simple_parsing": "import simple_parsing\nsimple_parsing.parse(int)\n",
    "draccus": "import draccus\n@draccus.wrap()\ndef main(cfg): ...\nmain()\n",
    "jsonargparse": "from jsonargparse import CLI\nCLI(print)\n",
    "TrlParser": "from trl import TrlParser\nTrlParser(1).parse_args_and_config()\n",
    "TrainingArguments": """
        from transformers import HfArgumentParser, TrainingArguments
        args, = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
    """,
    "base outside": """
        from dataclasses import dataclass
        from transformers import HfArgumentParser
        from trl import GRPOConfig
        @dataclass
        class Mine(GRPOConfig):
            x: int = 1
        args, = HfArgumentParser(Mine).parse_args_into_dataclasses()
    """,
    "remaining strings": """
        from dataclasses import dataclass
        from transformers import HfArgumentParser
        @dataclass
        class A:
            x: int = 1
        HfArgumentParser(A).parse_args_into_dataclasses(return_remaining_strings=True)
    """,
    "a class of its own": """
        from transformers import HfArgumentParser
        class Parser(HfArgumentParser):
            def parse(self):
                return self.parse_args_into_dataclasses()
        Parser(int).parse()
    """,
    "fire with **": "import fire\ndef f(lr=1, **kw): ...\nfire.Fire(f)\n",
    "fire with a class": "import fire\nclass A:\n    def f(self): ...\nfire.Fire(A)\n",
    "fire with a decorator": "import fire, x\n@x.y\ndef f(lr=1): ...\nfire.Fire(f)\n",
    "fire with a command": "import fire\ndef f(lr=1): ...\nfire.Fire(f, command='f')\n",
    "click group": "import click\n@click.group()\ndef main(): ...\nmain()\n",
    "click passes on": """
        import click
        @click.command(context_settings={"ignore_unknown_options": True})
        def main(): ...
        main()
    """,
}


@pytest.mark.parametrize("text", OPEN.values(), ids=OPEN)
def test_an_unclear_script_is_open_and_says_why(tmp_path: Path, text: str) -> None:
    result = flags(tmp_path, text.replace("{}", "pass"))
    assert result is not None
    assert result.is_incomplete
    assert result.why


@pytest.mark.parametrize("line", ["parser = deepspeed.{}", "deepspeed.{}"])
def test_deepspeed_adds_its_options(tmp_path: Path, line: str) -> None:
    call = line.format("add_config_arguments(parser)")
    names = option_names(tmp_path, "import deepspeed" + ARGPARSE.format(call))
    assert {"--lr", "--deepspeed", "--deepspeed_config", "--deepscale"} <= names


def test_loop_over_literals_adds_an_option_in_each_turn(tmp_path: Path) -> None:
    # as in openrlhf/cli/train_ppo_ray.py of OpenRLHF 0.11
    loop = 'for p in ("actor", "critic"): parser.add_argument(f"--{p}.optim", type=str)'
    names = option_names(tmp_path, ARGPARSE.format(loop))
    assert {"--actor.optim", "--critic.optim"} <= names


@pytest.mark.parametrize(
    "loop",
    [
        "for p in get(): parser.add_argument(f'--{p}.optim')",
        "for p in ['a']: parser.add_argument(f'--{p!r}.optim')",
        "for p in ['a']: parser.add_argument(f'--{q}.optim')",
        "for p in ['a']: p += 'b'; parser.add_argument(f'--{p}.optim')",
        "for p in ['a', 1]: parser.add_argument(f'--{p}.optim')",
    ],
)
def test_loop_over_computed_names_is_open(tmp_path: Path, loop: str) -> None:
    result = flags(tmp_path, ARGPARSE.format(loop))
    assert result is not None
    assert result.is_incomplete


@pytest.mark.parametrize("method", ["add_argument", "add", "add_arg"])
def test_options_of_configargparse_may_come_from_its_files(tmp_path: Path, method: str) -> None:
    text = f"""
        import configargparse
        p = configargparse.ArgParser(default_config_files=["a.txt"])
        p.{method}("--config", is_config_file=True)
        p.{method}("--lr", type=float, required=True)
        p.parse_args()
    """
    options = flags(tmp_path, text)
    assert options is not None
    assert options.names().keys() == {"-h", "--help", "--config", "--lr"}
    assert not any(option.required for option in options.options)


def test_option_that_configargparse_adds_for_its_file_is_open(tmp_path: Path) -> None:
    call = "configargparse.ArgParser(args_for_setting_config_path=['-c'])"
    result = flags(tmp_path, f"import configargparse\np = {call}\np.parse_args()")
    assert result is not None
    assert result.is_incomplete
