"""What a dry-run prints, byte for byte; and each printed script does what the plan says.

After a wanted change: `PYTHONPATH=tests python -m support.example_checkouts` rewrites the golden
files; read the diff.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from support import REPOSITORY
from support.example_checkouts import EXAMPLES, FORMS, GOLDEN, ROOT, dry_run, lay_out

from safelaunch.environ import matches

if TYPE_CHECKING:
    from pathlib import Path

NAMES = sorted(EXAMPLES)

RECORD = """
import json, os, sys
with open(sys.argv[1], "w") as file:
    json.dump({"argv": sys.argv[2:], "env": dict(os.environ), "cwd": os.getcwd()}, file)
"""
# what another job, a cluster's prologue and the caller's own shell leave behind
LEFT_OVER = {
    "RANK": "5", "WORLD_SIZE": "9", "MASTER_PORT": "1", "PET_NNODES": "3", "SLURM_NTASKS": "7",
    "ACCELERATE_USE_FSDP": "true", "PYTHONHOME": "/nowhere", "SAFELAUNCH_RUN_ID": "other",
}  # fmt: skip
SEEDED = {
    "PYTHONPATH": "/seeded", "LD_LIBRARY_PATH": "/seeded", "SEEDED": "s e e d", "GONE": "there",
    "WANDB_API_KEY": "not a key", "HF_TOKEN": "not a token",
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_the_dry_run_prints_the_same_bytes(name: str, form: str, tmp_path: Path) -> None:
    job = lay_out(EXAMPLES[name], tmp_path)
    printed = dry_run(tmp_path, job, FORMS[form], *EXAMPLES[name].options)
    assert printed.decode() == (GOLDEN / f"{name}.{form}").read_bytes().decode()


def test_every_golden_file_belongs_to_an_example() -> None:
    stems = {p.stem for p in GOLDEN.iterdir() if p.suffix in (".json", ".sh")}
    assert stems == set(EXAMPLES)


def test_every_example_is_held_by_a_golden_file() -> None:
    jobs = {str(p.relative_to(REPOSITORY)) for p in REPOSITORY.glob("examples/*/*.yaml")}
    assert jobs <= {example.job for example in EXAMPLES.values()}


def test_two_project_paths_print_the_same_plan(tmp_path: Path) -> None:
    printed = []
    for folder in ("one", "another folder"):
        job = lay_out(EXAMPLES["companionguard"], tmp_path / folder)
        printed.append(dry_run(tmp_path / folder, job, "--json"))
    assert printed[0] == printed[1]


# of an engine's job only the nodes can fill in what runs, and of steps those that have ended
RUN_HERE = [name for name in NAMES if not EXAMPLES[name].options and not EXAMPLES[name].has_steps]


class Ran(NamedTuple):
    """What arrived where the launcher would have run, and what the plan says, both bound."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    plan: Any
    python: str  # the stub


def bind(text: str, facts: dict[str, str]) -> str:
    """Put real folders and values for the placeholders of a golden file."""
    for placeholder, value in facts.items():
        text = text.replace(placeholder, value)
    return text


def stub(path: Path, record: Path) -> None:
    """Put a program there that records how it was started."""
    path.parent.mkdir(parents=True, exist_ok=True)
    recorder = record.with_name("recorder.py")
    recorder.write_text(RECORD, encoding="utf-8")
    python = sys.executable
    path.write_text(f'#!/bin/sh\nexec "{python}" -IS "{recorder}" "{record}" "$0" "$@"\n', "utf-8")
    path.chmod(0o755)


@pytest.fixture(scope="module", params=RUN_HERE)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run a golden script in its checkout, with a stub as the interpreter and on PATH."""
    name, folder = request.param, tmp_path_factory.mktemp("ran")
    lay_out(EXAMPLES[name], folder / "checkout")
    environment, record = folder / "env", folder / "record.json"
    stub(environment / "bin" / "python", record)
    stub(environment / "bin" / "trainer", record)
    stub(environment / "bin" / "srun", record)
    facts = {
        ROOT: str(folder / "checkout"),
        "/path/to/env": str(environment),
        "<python>": str(environment / "bin" / "python"),
        "<prefix>": str(environment),
        "<run-dir>": str(folder),
        "<port>": "23456",
        "<threads>": "3",
    }
    script = folder / "launch.sh"
    script.write_text(bind((GOLDEN / f"{name}.sh").read_text("utf-8"), facts), "utf-8")
    env = {"HOME": str(folder), "PATH": f"{environment}/bin:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", script],
        env={**env, **LEFT_OVER, **SEEDED},
        cwd="/",
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    launched = json.loads(record.read_bytes())
    (plan,) = json.loads(bind((GOLDEN / f"{name}.json").read_text("utf-8"), facts))["nodes"]
    return Ran(launched["argv"], launched["env"], launched["cwd"], plan, str(environment / "bin"))


def test_a_script_runs_the_words_of_the_plan(ran: Ran) -> None:
    program, *words = ran.plan["argv"]
    argv = ran.argv
    if "ranks" in ran.plan:
        words = ran.plan["ranks"]["argv"][1:]
        argv = [argv[0], *argv[argv.index("--") + 2 :]]
    assert argv == [os.path.join(ran.python, program), *words]


def test_a_script_runs_in_the_directory_of_the_plan(ran: Ran) -> None:
    assert ran.cwd == ran.plan["cwd"]


def test_a_script_sets_every_variable_of_the_plan(ran: Ran) -> None:
    expected = {n: v["value"] for n, v in ran.plan["env"].items() if v["value"] is not None}
    before = {**SEEDED, "PATH": f"{ran.python}:{os.environ['PATH']}"}
    inherited = ran.plan["inherit"]
    for name, value in expected.items():
        if value == "***":
            expected[name] = SEEDED[name]
        elif ran.plan["env"][name].get("prepend"):
            is_inherited = name == "PATH" or inherited == "all" or name in inherited
            expected[name] = f"{value}:{before[name]}" if is_inherited else value
    assert {name: ran.env.get(name) for name in expected} == expected


def test_a_script_sets_every_variable_of_the_ranks(ran: Ran) -> None:
    expected = ran.plan.get("ranks", {"env": {}})["env"]
    assert {name: ran.env.get(name) for name in expected} == expected


def test_a_script_scrubs_what_other_jobs_left_behind(ran: Ran) -> None:
    set_again = {n for n, v in ran.plan["env"].items() if v["value"] is not None}
    set_again |= ran.plan.get("ranks", {"env": {}})["env"].keys()
    removed = {name for name in LEFT_OVER if matches(name, ran.plan["unset"])}
    left = removed - {"SAFELAUNCH_RUN_ID"} - set_again
    assert not left & set(ran.env)


def test_a_script_hands_on_only_what_the_job_inherits(ran: Ran) -> None:
    all_of_it = ran.plan["inherit"] == "all"
    removed = "GONE" in ran.plan["unset"]
    expected = {"SEEDED": "s e e d", "GONE": "there" if all_of_it and not removed else None}
    assert {name: ran.env.get(name) for name in expected} == expected
