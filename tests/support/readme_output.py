"""What the README prints as output of safelaunch, from real runs; `scripts/readme` writes it there.

A block stands below a comment `<!-- output: NAME -->`, and begins with the commands that print it.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from support import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable

README = REPOSITORY / "README.md"
BLOCK = "<!-- output: {} -->\n```console\n(.*?)```"
PROJECT = "/home/me/llm"

# without DistributedDataParallel and torch.optim: each rank would import torch._dynamo for them
TRAIN = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.Linear(8, 1)
for weights in model.parameters():
    dist.broadcast(weights.data, 0)
for step in range(1, 4):
    inputs = torch.randn(32, 8)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    model.zero_grad()
    loss.backward()
    for weights in model.parameters():
        dist.all_reduce(weights.grad)
        weights.data -= 0.1 * weights.grad / dist.get_world_size()
    if dist.get_rank() == 0:
        print(f"step {step}/3 loss {loss.item():.3f}", flush=True)
dist.destroy_process_group()
"""
FAILING = """\
import os
import torch
import torch.distributed as dist
from src.data import collate

dist.init_process_group("gloo")
rows = [{}] if os.environ["RANK"] == "1" else [{"labels": 1.0}]
dist.all_reduce(torch.tensor(collate(rows)))
"""
COLLATE = """\
def collate(rows):
    return [row["labels"] for row in rows]
"""
TRAIN_SH = "torchrun --nproc_per_node 2 train.py 2>&1 | tee train.log\n"


def text(name: str) -> str:
    """Return a block of output as it stands in the README."""
    (block,) = re.findall(BLOCK.format(name), README.read_text(encoding="utf-8"), re.DOTALL)
    return str(block)


def commands(name: str) -> list[str]:
    """Return the commands of a block of output."""
    return re.findall(r"^\$ safelaunch (.*)$", text(name), re.MULTILINE)


class Project:
    """A folder with a project, in which commands run as by hand; its runs are kept beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._home = folder / "home"
        scripts = os.path.dirname(sys.executable)  # of an interpreter that has torch
        # nothing else of the caller's: a start notes what a job inherits
        self._environ = {
            "COLUMNS": "80",
            "HOME": str(self._home),
            "PATH": scripts + os.pathsep + os.environ.get("PATH", os.defpath),
            "SAFELAUNCH_HOME": str(self._home),
            "VIRTUAL_ENV": os.path.dirname(scripts),
        }
        self.write("pyproject.toml", "")

    def write(self, name: str, body: str) -> None:
        """Write a file of the project."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body, encoding="utf-8")

    def printed(self, command: str, *, stdout: bool = True) -> str:
        """Return what a command prints, stdout and stderr as they come."""
        done = subprocess.run(
            [sys.executable, "-m", "safelaunch", *command.split()],
            cwd=self.folder,
            env=self._environ,
            stdout=subprocess.PIPE if stdout else subprocess.DEVNULL,
            stderr=subprocess.STDOUT if stdout else subprocess.PIPE,
            text=True,
            check=False,
        )
        shown = (done.stdout if stdout else done.stderr).replace(str(self.folder), PROJECT)
        shown = shown.replace(f" on {platform.node()} ", " on gpu1 ")
        return f"$ safelaunch {command}\n{shown}"


def first_run(project: Project) -> str:
    """Return what the first run and `ps` after it print."""
    project.write("train.py", TRAIN)
    return "".join(project.printed(command) for command in commands("first-run"))


def failure(project: Project) -> str:
    """Return what is said of a run that fails, without what comes before it."""
    project.write("train.py", FAILING)
    project.write("train.sh", TRAIN_SH)
    project.write("src/__init__.py", "")
    project.write("src/data.py", COLLATE)
    (command,) = commands("failure")
    printed = project.printed(command, stdout=False)
    (block,) = re.findall(r"^train-\d.*", printed, re.MULTILINE | re.DOTALL)
    return f"$ safelaunch {command}\n{block}"


def dry_run(project: Project) -> str:
    """Return the command line of the dry-run, and one of its variables."""
    (job,) = re.findall(r"```yaml\n(name: .*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    project.write("train.yaml", job)
    project.write("scripts/train.py", "")
    (command,) = commands("dry-run")
    head, _, variables = project.printed(command).partition("environment\n")
    (chosen,) = re.findall(r"^  NCCL_SHM_DISABLE.*\n(?:   .*\n)*", variables, re.MULTILINE)
    return f"{head}  ...\n{chosen}"


OUTPUTS: dict[str, Callable[[Project], str]] = {
    "first-run": first_run,
    "failure": failure,
    "dry-run": dry_run,
}


def fresh(name: str) -> str:
    """Return a block of output as safelaunch prints it now."""
    folder = Path(tempfile.mkdtemp(prefix="llm-"))  # short: a long path would break lines elsewhere
    try:
        return OUTPUTS[name](Project(folder))
    finally:
        while folder.exists():  # a run that has ended may still write what it was made of
            shutil.rmtree(folder, ignore_errors=True)


def comparable(block: str) -> str:
    """Return a block without what differs from run to run: ids, times, hosts, losses, widths."""
    # how the other rank ends is chance: by the connection that closed, or by torchrun's SIGTERM
    block = re.sub(r"\n  (then|warning)  .*(\n {12}.*)*", r"\n  \1 _", block)
    varying = (
        r"-\d{8}-\d{6}-[0-9a-f]{4}|(\d+ min )?\d[\d.]*(?= s\b)"
        r"|(?<= loss )\S+|(?<= on )\S+|:\d+ in \S+"
    )
    return re.sub(r"[ -]+", " ", re.sub(varying, "_", block))


def main() -> None:
    """Write the output of today into the README."""
    readme = README.read_text(encoding="utf-8")
    for name in OUTPUTS:
        readme = readme.replace(text(name), fresh(name))
    README.write_text(readme, encoding="utf-8")


if __name__ == "__main__":
    main()
