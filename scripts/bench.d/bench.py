"""The bounds of safelaunch, measured. Each subcommand prints rows of a Markdown table.

Time is compared as ratios or differences of interleaved pairs in one run, so that the numbers mean
something on a busy machine too. Exit code 1 where a bound is missed.
"""

from __future__ import annotations

import compileall
import contextlib
import io
import json
import os
import platform
import shutil
import sys
from functools import partial
from importlib import metadata
from statistics import median
from typing import TYPE_CHECKING

from bad_input import bad_input
from card_queue import card_queue
from check import check
from complaints import complaints
from diagnose import diagnose
from direct import direct
from error_texts import error_texts
from facts import facts
from failures import failures
from flood import flood
from framework_rules import framework_rules
from kills import ROOT, matrix, tests
from launches import imports, launches
from lint import lint
from loop import loop
from many_hosts import many_hosts
from parts import parts
from remote import queries, remote
from rows import SAFELAUNCH, Row, home
from slow_line import slow_line
from slurm import slurm
from starts import starts
from sync import sync
from timing import cost, median_ratio, pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

DIGITS = os.path.join("examples", "digits", "digits.yaml")
RESULT = os.path.join(ROOT, "docs", "benchmarks.md")

DRY_RUN_RATIO = 2.0
HELP_RATIO = 15
PS_RATIO = 5

HEAD = "| what | measured | bound | ok |\n|---|---|---|---|"


# -- dryrun ----------------------------------------------------------------------------------------


def dryrun() -> Iterator[Row]:
    """Yield what a dry-run costs beside its two libraries, and beside accelerate's own help."""
    dry = [SAFELAUNCH, "run", "--dry-run", DIGITS]
    bare = [sys.executable, "-c", "import click, yaml"]
    measured = pairs(31, partial(_taken, "cpu", dry), partial(_taken, "cpu", bare))
    ratio = median_ratio(measured)
    ours, theirs = (median(column) * 1000 for column in zip(*measured, strict=True))
    yield Row(
        'CPU time of `run --dry-run` / `python -c "import click, yaml"`, median of 31 pairs',
        f"{ratio:.2f} ({ours:.0f} ms / {theirs:.0f} ms)",
        f"<= {DRY_RUN_RATIO}",
        ratio <= DRY_RUN_RATIO,
    )
    helping = [os.path.join(os.path.dirname(sys.executable), "accelerate"), "launch", "--help"]
    for name in ("wall", "cpu"):
        measured = pairs(5, partial(_taken, name, helping), partial(_taken, name, dry))
        ratio = median_ratio(measured)
        theirs, ours = (median(column) for column in zip(*measured, strict=True))
        yield Row(
            f"{'CPU' if name == 'cpu' else name} time of `accelerate launch --help` / "
            "`run --dry-run`, median of 5 pairs",
            f"{ratio:.0f} ({theirs:.2f} s / {ours:.2f} s)",
            f">= {HELP_RATIO}",
            ratio >= HELP_RATIO,
        )


def _taken(kind: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> float:
    taken = cost(argv, env)
    return taken.cpu if kind == "cpu" else taken.wall


# -- ps --------------------------------------------------------------------------------------------

RUNS = 2000


def ps() -> Iterator[Row]:
    """Yield what `ps` costs with many recorded runs beside what it costs with one."""
    with home() as (single, env_of_single), home() as (several, env_of_several):
        run_id = _a_run(single, env_of_single)
        for n in range(RUNS):
            _copy_run(single, several, run_id, n)
        for words in (["ps"], ["ps", "--all", "--json"]):
            argv = [SAFELAUNCH, *words]
            measured = pairs(
                7,
                partial(_taken, "cpu", argv, env_of_several),
                partial(_taken, "cpu", argv, env_of_single),
            )
            ratio = median_ratio(measured)
            slow, fast = (median(column) * 1000 for column in zip(*measured, strict=True))
            yield Row(
                f"CPU time of `{' '.join(words)}` with {RUNS:,} recorded runs / with one, "
                "median of 7 pairs",
                f"{ratio:.1f} ({slow:.0f} ms / {fast:.0f} ms)",
                f"< {PS_RATIO}",
                ratio < PS_RATIO,
            )


def _a_run(folder: str, env: Mapping[str, str]) -> str:
    script, job = os.path.join(folder, "ok.py"), os.path.join(folder, "ok.yaml")
    with open(script, "w", encoding="utf-8") as file:
        file.write("print('done')\n")
    with open(job, "w", encoding="utf-8") as file:
        file.write("launcher: python\nscript: ok.py\n")
        file.write(f"python: {json.dumps(sys.executable)}\n")
    cost([SAFELAUNCH, "run", "--follow", job], env)
    (run_id,) = os.listdir(os.path.join(folder, "runs"))
    return run_id


def _copy_run(source: str, target: str, run_id: str, n: int) -> None:
    name, day, clock, _ = run_id.rsplit("-", 3)
    clock = f"{n // 3600 % 24:02}{n // 60 % 60:02}{n % 60:02}" if n else clock
    copy_id = f"{name}-{day}-{clock}-{n:04x}"
    copy = os.path.join(target, "runs", copy_id)
    # what no command writes to again is linked, not copied: the disk is not what is measured
    shutil.copytree(os.path.join(source, "runs", run_id), copy, copy_function=os.link)
    for file in ("run.json", "status.json"):
        path = os.path.join(copy, "node-0", file)
        with open(path, encoding="utf-8") as old:
            text = old.read().replace(run_id, copy_id)
        os.unlink(path)
        with open(path, "w", encoding="utf-8") as new:
            new.write(text)


# -- values and files ------------------------------------------------------------------------------


def hostile() -> Iterator[Row]:
    """Yield how many hostile values arrive unchanged as arguments, variables and paths."""
    values = tests("support.inputs.hostile_values")
    seed = int.from_bytes(os.urandom(4), "big")
    for launcher, count in (("python", 1000), ("torchrun", 200), ("accelerate", 200)):
        sent, wrong = values.run(count, size=100, seed=seed, launcher=launcher)
        for line in wrong[:10]:
            print(f"seed {seed}: {line}", file=sys.stderr)
        yield Row(
            f"hostile values as arguments, variables and paths at the ranks of {launcher}",
            f"{len(wrong)} differences in {sent:,} values"
            if wrong
            else f"{sent:,}/{sent:,} arrived unchanged",
            "all",
            not wrong,
        )


def fuzz() -> Iterator[Row]:
    """Yield how many fuzzed job files end in a traceback."""
    jobs = tests("support.inputs.fuzzed_jobs")
    count = 10000
    with contextlib.redirect_stdout(io.StringIO()) as output:
        tracebacks = int(jobs.main(count) or 0)
    if tracebacks:
        print(output.getvalue(), file=sys.stderr)
    yield Row(f"tracebacks from {count:,} fuzzed job files", str(tracebacks), "0", not tracebacks)


# -- the table -------------------------------------------------------------------------------------

SUBJECTS: dict[str, Callable[[], Iterator[Row]]] = {
    "dryrun": dryrun,
    "starts": starts,
    "hostile": hostile,
    "fuzz": fuzz,
    "ps": ps,
    "matrix": matrix,
    "queue": card_queue,
    "parts": parts,
    "slurm": slurm,
    "flood": flood,
    "sync": sync,
    "remote": remote,
    "loop": loop,
    "queries": queries,
    "slow-line": slow_line,
    "many-hosts": many_hosts,
    "lint": lint,
    "facts": facts,
    "check": check,
    "failures": failures,
    "error-texts": error_texts,
    "diagnose": diagnose,
    "bad-input": bad_input,
    "direct": direct,
}


# of folders of checkouts, which stand behind the name: their text is not in this repository
OF_FOLDERS: dict[str, Callable[[Sequence[str]], Iterator[Row]]] = {
    "import": imports,
    "launches": launches,
    "complaints": complaints,
    "rules": framework_rules,
    "direct": direct,  # folders of other versions of accelerate
}


def machine() -> str:
    """Return in words what the numbers were measured on."""
    versions = [f"{name} {metadata.version(name)}" for name in ("torch", "accelerate")]
    python = f"Python {platform.python_version()}"
    return ", ".join(
        [f"{os.cpu_count()} cores", f"{platform.system()} {platform.machine()}", python, *versions]
    )


def main(words: list[str]) -> int:
    """Measure the subjects that are named; `all` writes docs/benchmarks.md too."""
    folder = os.getcwd()
    os.chdir(ROOT)
    # as an installed package: where PYTHONDONTWRITEBYTECODE is set, each start compiles what is new
    compileall.compile_dir(os.path.join(ROOT, "safelaunch"), quiet=1)
    if words and words[0] in OF_FOLDERS and len(words) > 1:
        folders = [os.path.join(folder, word) for word in words[1:]]
        return exit_code(show(OF_FOLDERS[words[0]](folders)))
    if not words or not set(words) <= {*SUBJECTS, "all"}:
        subjects = [*SUBJECTS, *(f"{name} FOLDER..." for name in OF_FOLDERS)]
        print("usage: scripts/bench all | " + " | ".join(subjects), file=sys.stderr)
        return 2
    names = list(SUBJECTS) if "all" in words else words
    rows = show(row for name in names for row in SUBJECTS[name]())
    if "all" in words:
        write(rows)
    return exit_code(rows)


def show(rows: Iterable[Row]) -> list[Row]:
    """Print rows as they come, and return them."""
    print(HEAD, flush=True)
    result = []
    for row in rows:
        print(row, flush=True)
        result.append(row)
    return result


def exit_code(rows: Sequence[Row]) -> int:
    """Return 1 where a bound is missed."""
    return 0 if all(row.ok is not False for row in rows) else 1


def write(rows: list[Row]) -> None:
    """Write the table with the command that made it."""
    table = "\n".join([HEAD, *map(str, rows)])
    text = (
        "# Benchmarks\n\n"
        "Made by `scripts/bench all`, which exits 1 where a bound is missed; nothing in the tests "
        "depends on time.\n"
        f"Machine: {machine()}.\n\n{table}\n\n"
        "Times are medians over interleaved pairs, the two commands in turns, after one turn that "
        "is not counted.\nThe worker of the `--follow` rows imports nothing: the launchers' own "
        "start is all that stands before its line.\n"
        "Hostile values: quotes, `$`, backslashes, line breaks, commas, tabs, globs, leading "
        "dashes, control\ncharacters, non-ASCII, empty; new ones at each run "
        "(`tests/support/inputs/hostile_values.py`).\n"
        "The faults of the kill matrix, of the cascades, of supervisors killed at random moments, "
        "of connections cut\nthrough a proxy to a real sshd, and of two machines are in "
        "`tests/support/faults/`. The flood's clock\nstarts when both ranks may write.\n"
    )
    with open(RESULT, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
