"""Arrays: the option of sbatch for the parts of a run, and what a site allows."""

from __future__ import annotations

import re

from safelaunch.runtime import commands
from safelaunch.runtime.parts import preparation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LIMIT = 20.0  # seconds for scontrol
_OPTION = re.compile(r"^#SBATCH --array=([0-9,-]+)(%[0-9]+)?$", re.MULTILINE)
_MOST = re.compile(r"^MaxArraySize\s*=\s*([0-9]+)", re.MULTILINE)


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as sbatch takes them: `0-3,5`."""
    rows: list[list[int]] = []
    for number in numbers:
        if rows and rows[-1][1] == number - 1:
            rows[-1][1] = number
        else:
            rows.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in rows)


def with_tasks(script: str, numbers: Sequence[int]) -> str:
    """Return a batch script with only some tasks of its array."""
    return _OPTION.sub(lambda m: f"#SBATCH --array={ranges(numbers)}{m[2] or ''}", script, count=1)


def problem(script: str, prefix: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return why a site does not take the array of a script; "" where it does, or has none.

    sbatch itself says `Invalid job array specification`, and no number.
    """
    match = _OPTION.search(script)
    if match is None:
        return ""
    last = int(re.split("[,-]", match[1])[-1])
    argv = (*prefix, "scontrol", "show", "config")
    answer = commands.RunningCommand(argv, environ).result(LIMIT)
    most = _MOST.search(answer.out) if answer.code == 0 else None
    if most is None or last < int(most[1]):
        return ""
    return (
        f"{last + 1} parts are tasks of one array, and MaxArraySize of this cluster allows"
        f" {most[1]}: fewer parts"
    )


def task_folder(folder: str, name: str) -> str:
    """Return the folder of the part that is a task of an array: `7_3` of the run in a folder."""
    number = name.partition("_")[2]
    run_dir = f"{folder}/node-0"
    return preparation.folder(run_dir, int(number)) if number.isdigit() else folder
