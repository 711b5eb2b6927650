"""Plausible values for what a plan knows only late, for checks that judge arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from safelaunch.plan.members.words import late_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.model import Args, Plan

MOST = 20  # sets of arguments that are judged of a matrix
_PORT = "20000"
_OF_SERVICE = {"host": "127.0.0.1", "port": _PORT, "url": f"http://127.0.0.1:{_PORT}"}
_OF_SHARD = {"index": "0", "count": "2"}
_PATH = "/late"
_NUMBER = "1"  # a metric: any number


def example_args(args: Args, plan: Plan) -> Iterator[Args]:
    """Yield arguments as the program may get them, each late word with a value in its place.

    Those of a matrix are its own: there are as many sets as its longest list has values.
    """
    names = [late.value for late in late_values(plan)]
    matrix = {} if plan.fan_out is None else plan.fan_out.matrix
    used = [len(matrix.get(name.partition(".")[2], ())) for name in names]
    for number in range(min(MOST, max(used, default=0)) or 1):
        values = {f"{{{name}}}": _example(name, matrix, number) for name in names}
        yield _with_values(args, values) if values else args


def _example(name: str, matrix: Mapping[str, tuple[str, ...]], number: int) -> str:
    kind, _, rest = name.partition(".")
    if kind == "matrix":
        values = matrix.get(rest) or ("",)
        return values[min(number, len(values) - 1)]
    if kind == "services":
        return _OF_SERVICE.get(rest.rpartition(".")[2], _PATH)
    if kind == "shard":
        return _OF_SHARD.get(rest, _PATH)
    return _NUMBER if ".metrics." in name else _PATH


def _with_values(args: Args, values: Mapping[str, str]) -> Args:
    def filled(word: str) -> str:
        for late, value in values.items():
            word = word.replace(late, value)
        return word

    options = tuple(
        (name, value if isinstance(value, bool) else tuple(map(filled, value)))
        for name, value in args.options
    )
    return replace(args, words=tuple(map(filled, args.words)), options=options)
