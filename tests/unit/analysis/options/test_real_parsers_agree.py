from __future__ import annotations

import argparse
import random
from typing import TYPE_CHECKING

import click

from safelaunch.analysis.options.read import read_options
from safelaunch.analysis.options.unknown_options import option_problems
from safelaunch.model import Args

if TYPE_CHECKING:
    from pathlib import Path


class Refused(Exception):  # noqa: N818 - what a parser says
    pass


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise Refused(message)


def test_argparse_itself_agrees_with_every_complaint(tmp_path: Path) -> None:
    rng = random.Random(5)  # noqa: S311 - a reproducible sample
    names = ["--lr", "--lr_rate", "--model", "--bf16", "-n", "-l", "--mode", "--use_x"]
    kinds = [
        *("type=float", "type=int", "action='store_true'", "nargs='+'", "nargs=2, type=float"),
        *("choices=['a', 'b']", "nargs='?'", "nargs='*'", "action='append'", "required=True"),
        *("action='count'", "action=argparse.BooleanOptionalAction", "type=int, choices=[1, 2]"),
    ]
    values = ["1", "1e-3", "-1", "-1e-5", "x", "a", "True", "", "a b", "-", "d"]
    complaints = refusals = 0
    for number in range(80):
        used = rng.sample(names, rng.randint(1, 5))
        lines = [f"p.add_argument({name!r}, {rng.choice(kinds)})" for name in used]
        parser_line = "p = argparse.ArgumentParser()"
        script = tmp_path / f"{number}.py"
        script.write_text("\n".join(["import argparse", parser_line, *lines, "p.parse_args()"]))
        flags = read_options(script, [], seconds=30)
        assert flags is not None
        parser = Parser()
        exec("\n".join(lines), {"p": parser, "argparse": argparse})  # noqa: S102 - our own lines
        for _ in range(15):
            words = []
            for name in (
                *rng.sample(used, rng.randint(0, len(used))),
                *rng.choices(["", "--mo", "--no", "-x"], [9, 1, 1, 1]),
            ):
                form = rng.choice(
                    [[name], [f"{name}={rng.choice(values)}"], [name, rng.choice(values)]]
                )
                words += form if name else []
            result = [
                p
                for p in option_problems(flags, Args(words=tuple(words)))
                if "type=bool" not in p.message
            ]
            try:
                parser.parse_args(words)
            except Refused:
                refusals += 1
                complaints += bool(result)
            else:
                assert result == [], (lines, words)
    assert complaints > 0.8 * refusals > 0


def test_click_itself_agrees_with_every_complaint(tmp_path: Path) -> None:
    rng = random.Random(6)  # noqa: S311 - a reproducible sample
    options = [
        *("'--lr'", "'--use-x/--no-use-x'", "'--bf16', is_flag=True", "'--steps', type=int"),
        *("'--mode', type=click.Choice(['a', 'b'])", "'--n', required=True", "'--v', count=True"),
        *("'--pair', nargs=2", "'--tags', multiple=True", "'--rate', '-r', type=float"),
    ]
    values = ["1", "1e-3", "-1", "a", "x", "--lr", "True"]
    for number in range(60):
        used = rng.sample(options, rng.randint(1, 5))
        lines = ["import click", "@click.command()", *(f"@click.option({o})" for o in used)]
        text = "\n".join(
            [*lines, "def main(**kw): ...", "if __name__ == '__main__':", "    main()"]
        )
        script = tmp_path / f"{number}.py"
        script.write_text(text)
        flags = read_options(script, [], seconds=30)
        assert flags is not None
        space: dict[str, click.Command] = {}
        exec(text, space)  # noqa: S102 - our own lines
        names = [part for o in used for part in o.split(",")[0].strip("'").split("/")]
        for _ in range(15):
            words = []
            for name in (
                *rng.sample(names, rng.randint(0, len(names))),
                rng.choice(["", "--ste", "-q"]),
            ):
                form = rng.choice(
                    [[name], [f"{name}={rng.choice(values)}"], [name, rng.choice(values)]]
                )
                words += form if name else []
            result = list(option_problems(flags, Args(words=tuple(words))))
            try:
                space["main"].main(list(words), standalone_mode=False)
            except click.ClickException:
                continue
            assert result == [], (used, words)
