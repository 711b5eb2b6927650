"""What an interpreter says of itself is asked once, and again where it may say something else."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.project import Project

from safelaunch.runtime.start import start_probe
from safelaunch.start import interpreter_cache, preflight
from safelaunch.start.local_probe import LocalProbe

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.model import NodePlan
    from safelaunch.runtime.commands import CommandResult

NUMBER = "python{}.{}".format(*sys.version_info[:2])
JOB = "launcher: torchrun\nscript: train.py\nprocesses: 2\nstart: direct\nprofile: cpu\n"


class Environment:
    """A virtual environment in a folder, and safelaunch's folder beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder / "env", str(folder / "home")
        self.python = self.folder / "bin" / "python"
        self.python.parent.mkdir(parents=True)
        base = Path(sys._base_executable)  # type: ignore[attr-defined]
        self.python.symlink_to(base)
        (self.folder / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
        self.packages = self.folder / "lib" / NUMBER / "site-packages"
        self.packages.mkdir(parents=True)
        self.library = folder / "os.py"
        self.library.touch()
        self.environ = {"PATH": os.environ["PATH"], "SAFELAUNCH_HOME": self.home}

    def install(self, version: str) -> None:
        """Install a version of torch in the place of another one."""
        folder = self.packages / "torch"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "__init__.py").touch()
        (folder / "version.py").write_text(f"__version__ = '{version}'\n")

    def facts(self) -> dict[str, str]:
        return {**start_probe.facts(), "library": str(self.library)}

    def save(self) -> None:
        interpreter_cache.save(self.home, str(self.python), {}, self.facts())

    def load(self, **environ: str) -> dict[str, str] | None:
        return interpreter_cache.load(self.home, str(self.python), environ)

    def file(self) -> Path:
        return Path(self.home, interpreter_cache.FILE)


@pytest.fixture
def env(tmp_path: Path) -> Environment:
    return Environment(tmp_path)


def test_facts_are_those_that_were_saved(env: Environment) -> None:
    assert env.load() is None
    env.save()
    assert env.load() == env.facts()
    assert (env.file().stat().st_mode & 0o777, os.listdir(env.home)) == (0o600, [env.file().name])


def replace(env: Environment) -> None:
    env.python.unlink()
    shutil.copy(sys._base_executable, env.python)  # type: ignore[attr-defined]


CHANGES: dict[str, Callable[[Environment], object]] = {
    "another file": replace,
    "other settings": lambda env: (env.folder / "pyvenv.cfg").write_text("home = /usr/bin\n"),
    "no settings": lambda env: (env.folder / "pyvenv.cfg").unlink(),
    "settings beside it": lambda env: (env.python.parent / "pyvenv.cfg").touch(),
    "another library": lambda env: os.utime(env.library, (1, 1)),
    "no library": lambda env: env.library.unlink(),
    "broken cache": lambda env: env.file().write_text("{"),
    "cache of other things": lambda env: env.file().write_text('{"version": 1, "interpreters": 3}'),
    "incomplete entry": lambda env: env.file().write_text(
        env.file().read_text().replace('"version": "', '"other": "')
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_interpreter_that_may_have_changed_is_asked_again(env: Environment, change: str) -> None:
    env.save()
    CHANGES[change](env)
    assert env.load() is None


def test_other_libraries_of_the_linker_are_another_interpreter(env: Environment) -> None:
    env.save()
    assert env.load(LD_LIBRARY_PATH="/opt/python/lib") is None


def test_a_script_that_stands_for_an_interpreter_is_always_asked(env: Environment) -> None:
    env.python.unlink()
    env.python.write_text("#!/bin/sh\nexec python3 $@\n")
    env.save()
    assert env.load() is None


def test_a_folder_that_cannot_be_written_is_no_error(env: Environment) -> None:
    Path(env.home).touch()
    env.save()
    assert env.load() is None


@pytest.fixture
def node(env: Environment, tmp_path: Path) -> NodePlan:
    return Project(tmp_path / "project").plan(JOB + f"python: {env.python}\n").nodes[0]


def probed(env: Environment, node: NodePlan) -> CommandResult:
    """Return what a start's probe reports."""
    probe = LocalProbe(node, env.environ)
    for backend in probe.backends.values():
        backend.result()
    return probe.report(env.home).probe


def test_versions_of_packages_are_those_of_now(env: Environment, node: NodePlan) -> None:
    versions = []
    for version in ("2.8.0", "2.9.1"):
        env.install(version)
        versions.append(preflight.package_versions(node, probed(env, node))["torch"])
    assert versions == ["2.8.0", "2.9.1"]


def test_an_interpreter_is_asked_once(env: Environment, node: NodePlan) -> None:
    first = probed(env, node).out
    content = json.loads(env.file().read_text())
    content["interpreters"][str(env.python)]["facts"]["version"] = "3.99.0"
    env.file().write_text(json.dumps(content))
    second = probed(env, node).out
    assert second.startswith("version 3.99.0\n")
    names = [[line.split(" ")[0] for line in out.split("\n") if line] for out in (first, second)]
    assert names[0] == names[1]
