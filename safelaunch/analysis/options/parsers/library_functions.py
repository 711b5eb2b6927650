"""The options that functions of libraries add to a parser that they receive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.analysis.option_model import Option

if TYPE_CHECKING:
    from safelaunch.analysis.python.trees import SourceLine

_SWITCH = 0
_VALUE = 1
# deepspeed/__init__.py, _add_core_arguments: DeepSpeed 0.3 to 0.19 (2026-08); `--deepspeed_mpi`
# only up to 0.14, so it is never complained of.
_DEEPSPEED = {
    "--deepspeed": _SWITCH, "--deepspeed_config": _VALUE, "--deepscale": _SWITCH,
    "--deepscale_config": _VALUE, "--deepspeed_mpi": _SWITCH,
}  # fmt: skip
FUNCTIONS = {"deepspeed.add_config_arguments": _DEEPSPEED}


def options(name: str, place: SourceLine) -> list[Option]:
    """Return the options that a function adds."""
    return [
        Option(option.lstrip("-"), (option,), place, count, count)
        for option, count in FUNCTIONS[name].items()
    ]
