"""Real launch lines in folders of checkouts: what `check` complains of, for a person to judge.

The folders are named on the command line; nothing of their text is in this repository. The lines
are those that their scripts start, recorded in isolation with stubs in place of launchers;
SAFELAUNCH_BENCH_LINES limits how many of each folder, taken evenly. Each line goes to stderr when
it is judged, so that a run that is cut off has shown something, and every complaint at the end,
once for each text. The machine has eight GPUs by what a stand-in for nvidia-smi says;
SAFELAUNCH_BENCH_PROGRAMS names a folder of programs, such as the `bin` of an environment with the
projects' libraries, that comes first on PATH.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kills import tests
from launches import recorded_launches
from rows import SAFELAUNCH, Row, home

from safelaunch.importer.state import CALLER_VALUE
from safelaunch.script import quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from safelaunch.importer.findings import ScriptLaunch

PROGRAMS, LINES = "SAFELAUNCH_BENCH_PROGRAMS", "SAFELAUNCH_BENCH_LINES"
_GPUS = 8
_LIMIT = 120  # seconds


class Checked(NamedTuple):
    """A line, the exit code of its check, and what that complains of: id, status, evidence."""

    line: str
    code: int
    complaints: tuple[tuple[str, str, str], ...]


def complaints(folders: Sequence[str]) -> Iterator[Row]:
    """Yield how many lines `check` fails or warns of, for each check."""
    with home() as (folder, env):
        path = [os.environ.get(PROGRAMS, ""), _nvidia_smi(folder), env.get("PATH", os.defpath)]
        env["PATH"] = os.pathsep.join(filter(None, path))
        launches = [launch for folder in folders for launch in _sample(folder)]
        checked = []
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for result in pool.map(partial(_check, env=env), launches):
                checked.append(result)
                print(f"exit {result.code}: {result.line}", file=sys.stderr)
                for name, status, evidence in result.complaints:
                    print(f"    {status} {name}: {evidence}", file=sys.stderr, flush=True)
    lines: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for result in checked:
        for complaint in result.complaints:
            lines[complaint].append(result.line)
    for (name, status, evidence), where in sorted(lines.items()):
        print(f"{status} {name} ({len(where)}): {evidence}\n    {where[0][:300]}", file=sys.stderr)
    counts = Counter((n, s) for (n, s, _), where in lines.items() for _ in where)
    for (name, status), count in sorted(counts.items()):
        yield Row(f"`check` of real lines: {status} of `{name}`", f"{count} lines", "-", ok=True)
    codes = Counter(result.code for result in checked)
    shown = ", ".join(f"exit {code}: {count}" for code, count in sorted(codes.items()))
    is_sound = not codes.keys() - {0, 2, 3}
    yield Row("`check` of real lines", f"{len(checked)} lines: {shown}", "no other exit", is_sound)


def _sample(folder: str) -> list[ScriptLaunch]:
    """Return the different launches below a folder, or as many of them as are asked for."""
    # a script that makes its folder makes it in the recording alone
    launches = {
        _key(launch): launch
        for launch in recorded_launches([folder])
        if os.path.isdir(launch.folder)
    }
    count = min(len(launches), int(os.environ.get(LINES, len(launches))))
    return [[*launches.values()][i * len(launches) // count] for i in range(count)]


def _key(launch: ScriptLaunch) -> tuple[object, ...]:
    return launch.folder, launch.words, tuple(sorted(launch.env.items(), key=str))


def _nvidia_smi(folder: str) -> str:
    """Write a stand-in for nvidia-smi, and return its folder."""
    machines = tests("support.facts.gpu_machines")
    place = os.path.join(folder, "programs")
    os.makedirs(place)
    answer = machines.query(*[machines.H100] * _GPUS)
    path = os.path.join(place, "nvidia-smi")
    with open(path, "w", encoding="utf-8") as file:
        case = (
            f'case "$*" in *--query-gpu=*pci.bus_id*) printf %s {quote(answer)};; *) exit 6;; esac'
        )
        file.write(f"#!/bin/sh\n{case}\n")
    os.chmod(path, stat.S_IRWXU)
    return place


def _check(launch: ScriptLaunch, env: Mapping[str, str]) -> Checked:
    own = {n: v for n, v in launch.env.items() if v is not None and CALLER_VALUE not in v}
    words = [f"{name}={value}" for name, value in own.items()] + [*launch.words]
    argv = [SAFELAUNCH, "check", "--json", "--", *words]
    line = " ".join(map(quote, words))
    start = partial(subprocess.run, cwd=launch.folder, env=env, capture_output=True, text=True)
    try:
        done = start(argv, timeout=_LIMIT, check=False)
    except subprocess.TimeoutExpired as e:
        return Checked(line, -1, (("refused", "no answer", str(e)),))
    results: list[dict[str, Any]] = []
    if done.stdout.startswith("{"):
        results = json.loads(done.stdout).get("results", [])
    complained = [
        (r["id"], r["status"], r["evidence"]) for r in results if r["status"] in ("fail", "warn")
    ]
    if done.returncode not in (0, 3):
        complained.append(
            ("refused", f"exit {done.returncode}", done.stderr.partition("\nhint:")[0])
        )
    return Checked(line, done.returncode, tuple(complained))
