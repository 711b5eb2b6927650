from __future__ import annotations

import ast
import json
import ntpath
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from support import windows_client

from safelaunch.cli.runs.attach import plain_ssh
from safelaunch.config import paths as paths_module
from safelaunch.config.paths import Paths, project_on_host
from safelaunch.model import Host, Origin
from safelaunch.runs import mirror
from safelaunch.runtime.agent import runs as agent_runs
from safelaunch.runtime.records import NodePlace

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGE = Path(__file__).parents[1] / "safelaunch"
RUN = "far-20260102-030405-abcd"


def client_modules() -> list[str]:
    """Return the modules of the client, and those of the runtime that it names."""
    modules = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if parts[1] == "runtime" or parts[-1] in ("__main__", "sandbox"):  # programs of their own
            continue
        modules.append(".".join(parts).removesuffix(".__init__"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "safelaunch.runtime":
                names = (alias.name for alias in node.names)
                modules += [f"safelaunch.runtime.{n}" for n in names if n.islower()]
            elif isinstance(node, ast.ImportFrom) and str(node.module).startswith(
                "safelaunch.runtime."
            ):
                modules.append(str(node.module))
    return list(dict.fromkeys(modules))


def test_every_module_of_the_client_is_imported_without_posix() -> None:
    code = f"""
import importlib, json, traceback
failed = {{}}
for name in {client_modules()!r}:
    try:
        importlib.import_module(name)
    except Exception:
        failed[name] = traceback.format_exc().splitlines()[-3:]
print(json.dumps(failed))
"""
    done = windows_client.python(code, cwd=PACKAGE.parent)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}


def test_what_is_taken_away_is_gone() -> None:
    done = windows_client.python(
        "import os, signal\nprint(hasattr(os, 'getuid'), hasattr(signal, 'SIGHUP'))\nimport termios"
    )
    assert done.stdout.strip() == "False False"
    assert "only POSIX has termios" in done.stderr


class Laptop:
    """A project and a home folder, and a safelaunch without POSIX."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.home = folder / "home"
        (self.project / "src").mkdir(parents=True)
        (self.project / "src" / "train.py").touch()
        (self.project / "pyproject.toml").touch()
        (folder / ".ssh").mkdir()
        # nothing listens there
        (folder / ".ssh" / "config").write_text("Host gpu1\n  HostName 127.0.0.1\n  Port 1\n")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("SAFELAUNCH_")}
        self.env |= {"HOME": str(folder), "SAFELAUNCH_HOME": str(self.home)}

    def job(self, text: str) -> None:
        """Write the job file, as an editor on Windows does."""
        (self.project / "job.yaml").write_bytes(text.replace("\n", "\r\n").encode())

    def cli(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            windows_client.command(*words),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            cwd=self.project,
            env={**self.env, "PYTHONPATH": str(PACKAGE.parent)},
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        return done

    def plan(self, text: str) -> dict[str, Any]:
        self.job(text)
        words = ("remote", "--host", "gpu1", "--dry-run", "--json", "job.yaml")
        plan: dict[str, Any] = json.loads(self.cli(*words).stdout)
        return plan

    def mirrored(self, status: Mapping[str, object]) -> None:
        """Write down a run of gpu1 as it was last seen."""
        place = NodePlace(host="gpu1", node=0, run_dir=f"/home/me/.safelaunch/runs/{RUN}/node-0")
        run = mirror.create(str(self.home), RUN, [place], "far")
        full = {"version": 1, "id": RUN, "name": "far", **status}
        view = {"status": full, "files": {}, "ranks": {"0": 7}, "attempts": [1]}
        mirror.save(run, place, agent_runs.NodeView.from_json(view))


@pytest.fixture
def laptop(tmp_path: Path) -> Laptop:
    return Laptop(tmp_path)


JOB = "launcher: torchrun\nprocesses: 2\n"


def test_a_remote_dry_run_of_a_job_with_crlf(laptop: Laptop) -> None:
    text = f"{JOB}script: src/train.py\nsetup: |\n  module load cuda\n  export A=1\n"
    node = laptop.plan(text)["nodes"][0]
    assert node["cwd"] == "<home>/safelaunch/project"
    assert "src/train.py" in node["argv"]
    assert "\r" not in json.dumps(node)
    assert "\\r" not in json.dumps(node)


def test_ps_and_show_of_a_run_of_a_host_that_is_away(laptop: Laptop) -> None:
    laptop.mirrored({"state": "running", "started_at": 1e9})
    assert RUN in laptop.cli("ps", code=4).stdout
    assert "gpu1 does not answer" in laptop.cli("show", RUN).stdout
    assert json.loads(laptop.cli("show", RUN, "--json").stdout)["state"] == "unknown"


def test_a_run_that_has_ended_is_listed_without_its_host(laptop: Laptop) -> None:
    laptop.mirrored({"state": "succeeded", "exit_code": 0, "started_at": 1e9, "ended_at": 1e9 + 5})
    (listed,) = json.loads(laptop.cli("ps", "--json").stdout)["runs"]
    assert (listed["state"], listed["host"]) == ("succeeded", "gpu1")


def test_a_character_that_the_code_page_lacks_ends_no_command(laptop: Laptop) -> None:
    laptop.env["PYTHONIOENCODING"] = "cp1252"
    laptop.job(f"{JOB}script: src/train.py\nargs: {{data: '\u8bad\u7ec3'}}\n")
    done = laptop.cli("remote", "--host", "gpu1", "--dry-run", "job.yaml")
    assert r"--data \u8bad\u7ec3" in done.stdout.replace("'", "")


@pytest.mark.parametrize(
    ("host", "line"),
    [
        (Host("gpu1"), "ssh -t gpu1 tmux"),
        (Host("gpu1", ssh="box"), "ssh -t box tmux"),
        (
            Host("gpu1", addresses=("10.0.0.7:2222", "vpn.example"), user="me", identity="~/k y"),
            'ssh -t -p 2222 -i "~/k y" me@10.0.0.7 tmux',
        ),
        (Host("me@10.0.0.7"), "ssh -t me@10.0.0.7 tmux"),
    ],
)
def test_the_plain_ssh_line_reaches_the_host_as_its_entry_says(host: Host, line: str) -> None:
    assert plain_ssh(host, "tmux") == line


@pytest.fixture
def on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths_module, "os", SimpleNamespace(path=ntpath, sep="\\"))


@pytest.mark.usefixtures("on_windows")
@pytest.mark.parametrize(
    ("path", "planned"),
    [
        (".", "<project>"),
        ("src/lib", "<project>/src/lib"),
        ("./a/../b", "<project>/b"),
        ("/opt/conda/bin/python", "/opt/conda/bin/python"),
        ("/data/../x", "/x"),
    ],
)
def test_paths_of_a_project_on_windows_become_those_of_the_host(path: str, planned: str) -> None:
    paths = Paths.from_job(r"C:\Users\Me\llm\job.yaml", r"C:\Users\Me\llm", remote=True)
    assert paths.root == r"C:\Users\Me\llm"
    assert str(paths.planned(path, Origin("--set"))) == planned


@pytest.mark.usefixtures("on_windows")
def test_the_case_of_a_path_on_windows_does_not_count() -> None:
    paths = Paths.from_job(r"c:\users\me\llm\job.yaml", r"C:\Users\Me\llm", remote=True)
    assert str(paths.view(r"C:\Users\ME\llm\Src")) == "<project>/Src"


def test_a_project_on_windows_has_its_folders_name_on_the_host() -> None:
    place = project_on_host(Host("gpu1"), "C:/Users/me/llm")
    assert str(place) == "<home>/safelaunch/llm"
