"""Which version of a package the ranks of a job will import, read without an import of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.python_versions import interpreter

from safelaunch import runtime
from safelaunch.runtime.start import start_probe

PROBE = Path(runtime.FOLDER, "start", "start_probe.py").read_text()
NUMBER = "python{}.{}".format(*sys.version_info[:2])


def write(root: Path, path: str, text: str = "") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def package(root: Path, name: str, version: str) -> None:
    write(root, f"{name}/__init__.py")
    write(root, f"{name}/version.py", f"__version__ = '{version}'")


def versions(
    python: str, *names: str, cwd: str = "/", path: str = "", env: dict[str, str] | None = None
) -> dict[str, str]:
    """Return what the probe of a start prints of packages."""
    done = subprocess.run(
        [python, "-I", "-S", "-c", PROBE, "7", cwd, path, *names],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **(env or {})},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    pairs = (line.split(" ", 1) for line in done.stdout.splitlines())
    return {name: value for name, value in pairs if name in names}


def environment(
    root: Path, text: str = "include-system-site-packages = false\n"
) -> tuple[str, Path]:
    """Make as much of a virtual environment as Python needs; return its Python and packages."""
    (root / "bin").mkdir(parents=True)
    base = Path(sys._base_executable)  # type: ignore[attr-defined]
    (root / "bin" / "python").symlink_to(base)
    write(root, "pyvenv.cfg", f"home = {base.parent}\n{text}")
    packages = root / "lib" / NUMBER / "site-packages"
    packages.mkdir(parents=True)
    return str(root / "bin" / "python"), packages


def version_in(name: str, *folders: Path) -> str | None:
    """Return the version of a package in folders."""
    installed = start_probe.package_version(name, [str(folder) for folder in folders])
    return installed[0] if installed else None


def test_a_version_is_read_from_version_py_before_the_package_itself(tmp_path: Path) -> None:
    write(tmp_path, "torch/version.py", "import x\n__version__ = '2.9.1+cu128'\ncuda = '12.8'\n")
    write(tmp_path, "torch/__init__.py", "__version__ = '0'")
    assert version_in("torch", tmp_path) == "2.9.1+cu128"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('__version__ = "1.15.0"\n', "1.15.0"),
        ('__version__: str = "1.15.0"', "1.15.0"),
        ("__version__='1.15.0.dev0'", "1.15.0.dev0"),
        ("__version__ = get_version()", None),
        ("x__version__ = '1'\n", None),
        ("__version__ == '1'\n", None),
        ("", None),
        ("\udcff\n", None),
    ],
)
def test_a_version_is_a_text_that_the_package_sets(
    text: str, version: str | None, tmp_path: Path
) -> None:
    write(tmp_path, "accelerate/__init__.py")
    (tmp_path / "accelerate/__init__.py").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert version_in("accelerate", tmp_path) == version


@pytest.mark.parametrize("shadow", ["torch/__init__.py", "torch.py"])
def test_a_package_without_a_version_hides_those_behind_it(shadow: str, tmp_path: Path) -> None:
    write(tmp_path, f"a/{shadow}")
    package(tmp_path / "b", "torch", "2.9.1")
    write(tmp_path, "c/torch/data.txt")  # a folder without a package hides nothing
    folders = [tmp_path / name for name in "cab"]
    assert version_in("torch", *folders) is None
    assert version_in("torch", folders[0], folders[2]) == "2.9.1"


def test_metadata_tells_the_version_where_the_package_does_not(tmp_path: Path) -> None:
    write(tmp_path, "swift/__init__.py", "from .version import __version__")
    write(tmp_path, "swift-4.6.0.dist-info/METADATA")
    assert version_in("swift", tmp_path) == "4.6.0"
    write(tmp_path, "swift-4.5.0.dist-info/METADATA")  # left over: one of the two is wrong
    assert version_in("swift", tmp_path) is None


def test_the_working_folder_and_pythonpath_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "rel:/abs:")
    monkeypatch.setenv("HOME", str(tmp_path))
    folders = start_probe.package_folders("~/job", "~/src:/b:$PYTHONPATH")
    job = f"{tmp_path}/job"
    assert folders[:6] == [job, f"{tmp_path}/src", "/b", f"{job}/rel", "/abs", f"{job}/"]
    assert start_probe.package_folders("/job", "")[:1] == ["/job"]
    assert "/abs" not in start_probe.package_folders("/job", "/b")
    monkeypatch.delenv("PYTHONPATH")
    assert start_probe.package_folders("/job", "$PYTHONPATH")[1] != "/job/"


def test_a_virtual_environment_has_its_own_packages_only(tmp_path: Path) -> None:
    python, packages = environment(tmp_path / "env")
    package(packages, "torch", "2.9.1")
    user = tmp_path / "user"
    write(user, f"lib/{NUMBER}/site-packages/accelerate/__init__.py", "__version__ = '1.2.0'")
    env = {"PYTHONUSERBASE": str(user)}
    assert versions(python, "torch", "accelerate", env=env) == {"torch": "2.9.1"}


@pytest.mark.parametrize("text", ["include-system-site-packages=true", ""])
def test_packages_of_the_user_come_behind_those_of_an_open_environment(
    text: str, tmp_path: Path
) -> None:
    python, packages = environment(tmp_path / "env", text)
    package(packages, "torch", "2.9.1")
    user = tmp_path / "user"
    for name in ("torch", "accelerate"):
        write(user, f"lib/{NUMBER}/site-packages/{name}/__init__.py", "__version__ = '1.2.0'")
    env = {"PYTHONUSERBASE": str(user)}
    shown = versions(python, "torch", "accelerate", env=env)
    assert shown == {"torch": "2.9.1", "accelerate": "1.2.0"}
    without = versions(python, "accelerate", env={**env, "PYTHONNOUSERSITE": "1"})
    assert without.get("accelerate") != "1.2.0"


def test_an_editable_install_is_not_seen(tmp_path: Path) -> None:
    python, packages = environment(tmp_path / "env")
    write(tmp_path, "src/accelerate/__init__.py", "__version__ = '1.15.0'")
    write(packages, "__editable__.accelerate-1.15.0.pth", str(tmp_path / "src"))
    write(packages, "accelerate-1.15.0.dist-info/METADATA", "Name: accelerate\nVersion: 1.15.0\n")
    assert versions(python, "accelerate") == {}


def test_an_installation_that_is_linked_has_its_own_prefix(tmp_path: Path) -> None:
    link = tmp_path / "bin" / "python"
    link.parent.mkdir()
    link.symlink_to(sys._base_executable)  # type: ignore[attr-defined]
    package(tmp_path / "lib" / NUMBER / "site-packages", "torch", "1.0")
    assert versions(str(link), "torch").get("torch") != "1.0"


PATHS = """
import json, site, sys
print(json.dumps([p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]))
"""


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.12", "3.13", "system", "venv"])
def test_folders_are_those_that_this_python_searches(version: str, tmp_path: Path) -> None:
    if version == "system":
        python = "/usr/bin/python3"
        if not os.path.exists(python):
            pytest.skip("no python3.11 here: none of the system")
    elif version == "venv":
        python = environment(tmp_path / "env", "include-system-site-packages = true")[0]
    else:
        python = interpreter(version)
    user = tmp_path / "user"
    number = subprocess.check_output(
        [python, "-c", "import sys; print('python%d.%d' % sys.version_info[:2])"], text=True
    ).strip()
    (user / "lib" / number / "site-packages").mkdir(parents=True)
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONUSERBASE": str(user)}
    real = json.loads(subprocess.check_output([python, "-c", PATHS], env=env, text=True))
    source = PROBE.partition('if __name__ == "__main__"')[0]
    source += "import json\nprint(json.dumps(site_folders()))\n"
    done = subprocess.check_output([python, "-I", "-S", "-c", source], env=env, text=True)
    ours = [folder for folder in json.loads(done) if os.path.isdir(folder)]
    assert ours == real


@pytest.mark.train
def test_versions_are_those_of_the_metadata() -> None:
    code = "from importlib.metadata import version as v; print(v('torch'), v('accelerate'))"
    torch, accelerate = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert versions(sys.executable, "torch", "accelerate") == {
        "torch": torch,
        "accelerate": accelerate,
    }


# -- cards of the RTX 40 series --------------------------------------------------------------------


def cards(root: Path, driver: str, *models: str) -> None:
    for number, model in enumerate(models):
        folder = f"proc/driver/nvidia/gpus/0000:0{number}:00.0"
        write(root, f"{folder}/information", f"Model: \t\t {model}\nIRQ:   \t\t 16\n")
    text = (
        f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Thu Mar 21\nGCC version: 12\n"
    )
    write(root, "proc/driver/nvidia/version", text)


GEFORCE = "NVIDIA GeForce RTX 4090"


@pytest.mark.parametrize(
    ("driver", "models", "is_old"),
    [
        ("535.129.03", (GEFORCE, GEFORCE), True),
        ("550.40.06", (GEFORCE, "NVIDIA A100-SXM4-80GB"), True),
        ("550.40.07", (GEFORCE, GEFORCE), False),
        ("570.86.15", (GEFORCE, GEFORCE), False),
        ("535.129.03", (GEFORCE,), False),
        ("535.129.03", ("NVIDIA A100-SXM4-80GB",) * 2, False),
        ("no number", (GEFORCE, GEFORCE), True),
    ],
)
def test_old_drivers_of_rtx_40_cards_are_seen(
    driver: str, models: tuple[str, ...], is_old: bool, tmp_path: Path
) -> None:
    cards(tmp_path, driver, *models)
    assert start_probe.is_old_rtx40(str(tmp_path)) == is_old


def test_cards_below_windows_may_be_any(tmp_path: Path) -> None:
    assert not start_probe.is_old_rtx40(str(tmp_path))
    write(tmp_path, "dev/dxg")
    assert start_probe.is_old_rtx40(str(tmp_path))
