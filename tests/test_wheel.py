from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]
SOURCES = "safelaunch/diagnose/signatures/"
START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import safelaunch.cli.main as c; "
    "print(c.__file__, file=sys.stderr); c.main()"
)


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tracked(*paths: str) -> list[str]:
    if not (CHECKOUT / ".git").exists():
        pytest.skip("not a git checkout")
    return run("git", "ls-files", *paths, cwd=CHECKOUT).splitlines()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution, and from it the wheel."""
    pytest.importorskip("build", reason="needs build")
    out = tmp_path_factory.mktemp("dist")
    command = ("-m", "build", "--no-isolation", "--outdir", str(out), str(CHECKOUT))
    run(sys.executable, *command, cwd=out)
    [built] = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    zipfile.ZipFile(wheel).extractall(folder)  # noqa: S202 - built by this test
    return folder


def test_the_wheel_holds_the_tracked_profiles_and_no_other(names: set[str]) -> None:
    shipped = [n.removeprefix("safelaunch/") for n in names if n.endswith(".yaml")]
    inside = {n for n in shipped if n.startswith("profiles/")}
    assert inside == {n for n in tracked("profiles") if n.endswith(".yaml")}


def test_the_wheel_holds_every_tracked_module(names: set[str]) -> None:
    files = {n for n in tracked("safelaunch") if (CHECKOUT / n).exists()}
    assert {n for n in files if not n.startswith(SOURCES)} - names == set()


def test_the_wheel_carries_the_signatures_once_as_the_runtime_reads_them(names: set[str]) -> None:
    assert "safelaunch/runtime/signatures/signatures.json" in names
    assert [n for n in names if n.startswith(SOURCES)] == []


def test_the_source_distribution_carries_the_signatures_as_they_are_written(wheel: Path) -> None:
    [built] = wheel.parent.glob("*.tar.gz")
    with tarfile.open(built) as file:
        members = {name.partition("/")[2] for name in file.getnames()}
    assert set(tracked(SOURCES)) - members == set()


def test_a_log_is_diagnosed_by_an_unpacked_wheel(unpacked: Path) -> None:
    log = unpacked / "train.log"
    log.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.\n")
    done = subprocess.run(
        (sys.executable, "-c", START, str(unpacked), "diagnose", str(log)),
        cwd=unpacked, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert "cuda-oom" in done.stdout, done.stderr


def test_the_wheel_holds_what_travels_to_the_ranks(names: set[str]) -> None:
    assert "safelaunch/runtime/site/sitecustomize.py" in names


def test_the_wheel_holds_no_tests_and_no_examples(names: set[str]) -> None:
    tops = {n.split("/")[0] for n in names if ".dist-info" not in n}
    assert tops == {"safelaunch"}


def test_profiles_are_found_in_an_unpacked_wheel(unpacked: Path) -> None:
    command = (sys.executable, "-c", START, str(unpacked), "profiles")
    listed = [line.split()[0] for line in run(*command, cwd=unpacked).splitlines()]
    assert listed == sorted(Path(n).stem for n in tracked("profiles") if n.endswith(".yaml"))
