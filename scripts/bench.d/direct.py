"""Whether a direct start does what the launchers do: by their flags, and in real starts."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kills import tests
from rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SUBSETS = 80  # random combinations of flags for each kind of launch
SHOWN = 20  # differences in the output


def direct(folders: Sequence[str] = ()) -> Iterator[Row]:
    """Yield what is the same, in the versions of accelerate that folders hold too.

    Each folder has one for each version, made by
    `pip install --no-deps --target FOLDER/1.0.1 accelerate==1.0.1`.
    """
    versions = {name: metadata.version(name) for name in ("torch", "accelerate")}
    with tempfile.TemporaryDirectory(prefix="safelaunch-bench-") as place:
        yield from _flags(Path(place), versions, folders)
        yield from _starts(Path(place), versions)


def _flags(place: Path, versions: Mapping[str, str], folders: Sequence[str]) -> Iterator[Row]:
    matrix, answers = (
        tests("support.direct_start.matrix"),
        tests("support.direct_start.launcher_answers"),
    )
    project = tests("support.project").Project(place / "project")
    (place / "runs").mkdir()
    os.chdir(project.folder)
    jobs = {
        "torchrun": list(matrix.torchrun_jobs(SUBSETS)),
        "accelerate": list(matrix.accelerate_jobs(SUBSETS)),
    }
    cases = {name: matrix.cases(some, project, str(place / "runs")) for name, some in jobs.items()}
    installed = [("torchrun", "torch", versions["torch"], "")]
    installed += [("accelerate", "accelerate", versions["accelerate"], "")]
    for folder in folders:
        names = sorted(
            os.listdir(folder), key=lambda name: [int(n) for n in re.findall(r"\d+", name)]
        )
        installed += [
            ("accelerate", "accelerate", name, os.path.join(folder, name)) for name in names
        ]
    env = {"PATH": os.defpath, "HOME": str(place), "TMPDIR": tempfile.gettempdir()}
    for launcher, package, version, path in installed:
        ask = partial(answers.ask, env={**env, "PYTHONPATH": path}, expected=(package, version))
        own = {**versions, package: version}
        result = matrix.compare(cases[launcher], own, ask, str(project.folder), sys.executable)
        yield _row(
            f"flags of {launcher} ({package} {version}): a direct start sets the same, or leaves "
            "the start to it",
            result.compared - len(result.wrong),
            result.wrong,
            f", {len(result.same)} of them started directly",
        )


def _starts(place: Path, versions: Mapping[str, str]) -> Iterator[Row]:
    observed, starts = (
        tests("support.direct_start.observed_ranks"),
        tests("support.direct_start.starts"),
    )
    project = tests("support.project").Project(place / "started")
    observed.write_program(project.folder)
    starts.write_deepspeed(project.folder)
    wrong: list[str] = []
    cases: dict[str, Any] = {**starts.SUITE, **starts.MORE}
    for number, (name, start) in enumerate(cases.items()):
        lines = observed.differences(start, project, place / str(number), versions)
        wrong += [f"{name}: {'; '.join(lines)}"] if lines else []
    yield _row(
        "starts by the launcher and directly: words, environment, folder, limits, descriptors, "
        "signals, session, priority and cores of each rank are the same",
        len(cases) - len(wrong),
        wrong,
    )


def _row(what: str, same: int, wrong: list[str], more: str = "") -> Row:
    for line in wrong[:SHOWN]:
        print(line, file=sys.stderr)
    return Row(what, f"{same}/{same + len(wrong)}{more}", "all", not wrong)
