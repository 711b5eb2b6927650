from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
HEAVY = (
    "torch", "accelerate", "paramiko", "rich", "pathspec", "packaging", "json",
    "tempfile", "importlib.metadata", "importlib.resources", "asyncio", "socket", "hypothesis",
)  # fmt: skip


def loaded(statement: str) -> set[str]:
    """Return the modules that are loaded after a statement, in an interpreter of its own."""
    code = (
        "import sys\ntry:\n"
        + "".join(f"    {line}\n" for line in statement.splitlines())
        + "except SystemExit as e:\n    assert not e.code, e.code\n"
        "sys.stderr.write('\\n'.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=DIGITS
    )
    return set(done.stderr.split("\n"))


@pytest.fixture(scope="module")
def dry_run() -> set[str]:
    return loaded(
        "sys.argv = ['safelaunch', 'run', '--dry-run', 'digits.yaml']\n"
        "import safelaunch.cli.main\nsafelaunch.cli.main.main()"
    )


@pytest.fixture(scope="module")
def needed() -> set[str]:
    """What click and PyYAML load by themselves: nothing can be saved there."""
    return loaded("import click, yaml\nclick.echo('')")


@pytest.mark.parametrize("module", HEAVY)
def test_a_dry_run_does_not_load(module: str, dry_run: set[str], needed: set[str]) -> None:
    assert module not in dry_run - needed


def test_a_dry_run_of_accelerate_loads_no_other_launcher(dry_run: set[str]) -> None:
    launchers = {m.rpartition(".")[2] for m in dry_run if m.startswith("safelaunch.launchers.")}
    assert launchers <= {"accelerate", "flag_table", "common"}


def test_a_dry_run_of_a_pasted_line_loads_no_yaml() -> None:
    line = ["accelerate", "launch", "--num_processes", "2", "scripts/train.py"]
    modules = loaded(
        f"sys.argv = ['safelaunch', 'run', '--dry-run', '--', *{line}]\n"
        "import safelaunch.cli.main\nsafelaunch.cli.main.main()"
    )
    assert "safelaunch.launchers.accelerate" in modules
    assert "yaml" not in modules


def test_a_dry_run_loads_nothing_that_starts_jobs(dry_run: set[str]) -> None:
    starting = {
        "safelaunch.start.local",
        "safelaunch.runs.store",
        "safelaunch.cli.start.targets.local",
        "subprocess",
    }
    assert starting & dry_run == set()


def test_the_package_alone_loads_nothing_of_it() -> None:
    assert {m for m in loaded("import safelaunch") if m.startswith("safelaunch.")} == set()


def test_paramiko_is_loaded_without_the_metadata_of_packages() -> None:
    modules = loaded(
        "from importlib.util import find_spec\n"
        "from safelaunch.ssh.paramiko_patches import paramiko\n"
        "assert paramiko().__version__[:1].isdigit() and paramiko().__version__ != '0'\n"
        "assert 'importlib.metadata' not in sys.modules\n"
        "from importlib import metadata\n"
        "assert metadata.version('paramiko') == paramiko().__version__"
    )
    assert "paramiko.transport" in modules
    assert "invoke" not in modules
