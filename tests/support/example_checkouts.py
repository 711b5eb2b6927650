"""The examples laid into skeletons of the checkouts that they belong to, and their dry-runs.

Run as a program it rewrites the golden files from what is printed now.
"""

from __future__ import annotations

import json
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from support import DATA, REPOSITORY, cli_process

GOLDEN = REPOSITORY / "tests" / "golden"
LAUNCHES = DATA / "launches"
FORMS = {"json": "--json", "sh": "--script"}  # golden file -> flag
ROOT = "/path/to/project"  # where the golden files say that the checkout lies


class Example(NamedTuple):
    """A job file, and what of its system's checkout a dry-run looks at."""

    job: str  # relative to the repository
    scripts: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()  # files that the job extends
    options: tuple[str, ...] = ()  # of its start
    has_steps: bool = False  # several jobs one after another


EXAMPLES = {
    "digits": Example("examples/digits/digits.yaml", ("scripts/train.py",)),
    "digits-steps": Example(
        "examples/digits/steps.yaml",
        ("scripts/train.py", "scripts/export.py", "scripts/evaluate.py"),
        beside=("examples/digits/digits.yaml",),
        has_steps=True,
    ),
    "parts-evaluate": Example("examples/parts/evaluate.yaml", ("scripts/score.py",)),
    "parts-inference": Example("examples/parts/inference.yaml", ("scripts/classify.py",)),
    "parts-sweep": Example("examples/parts/sweep.yaml", ("scripts/descend.py",)),
    "trl-grpo": Example(
        "examples/trl/grpo.yaml", ("scripts/train_grpo.py", "scripts/reward_server.py")
    ),
    "companionguard": Example("examples/companionguard/train.yaml", ("scripts/train_ppo.py",)),
    "lightrft-grpo": Example(
        "examples/lightrft/grpo.yaml", ("examples/gsm8k_geo3k/train_colocate.py",)
    ),
    "lightrft-low-mem": Example(
        "examples/lightrft/low-mem.yaml",
        ("examples/gsm8k_geo3k/train_colocate.py",),
        beside=("examples/lightrft/grpo.yaml",),
    ),
    "lightrft-slurm": Example(
        "examples/lightrft/slurm.yaml",
        ("examples/gsm8k_geo3k/train_colocate.py",),
        beside=("examples/lightrft/grpo.yaml",),
        options=("--on", "slurm"),
    ),
    "areal-v0.2": Example("examples/areal/v0.2.yaml"),
    "areal-launcher": Example("examples/areal/launcher.yaml", ("examples/math/gsm8k_grpo.py",)),
    "areal-v1": Example("examples/areal/v1.yaml", ("examples/math/gsm8k_rl.py",)),
    "areal-slurm": Example(
        "examples/areal/slurm.yaml",
        ("examples/math/gsm8k_rl.py",),
        beside=("examples/areal/v1.yaml",),
        options=("--on", "slurm"),
    ),
    "areal-v1-spmd": Example("examples/areal/v1-spmd.yaml", ("examples/math/gsm8k_rl.py",)),
    "swift-sft": Example("examples/ms-swift/sft.yaml"),
    "swift-docker": Example(
        "examples/ms-swift/docker.yaml", beside=("examples/ms-swift/sft.yaml",)
    ),
    "swift-rlhf": Example("examples/ms-swift/rlhf.yaml"),
    "swift-rollout": Example("examples/ms-swift/rollout.yaml"),
    "minionerec-sft": Example("examples/minionerec/sft.yaml", ("sft.py",)),
    "minionerec-rl": Example("examples/minionerec/rl.yaml", ("rl.py",)),
    "deepspeed": Example("tests/golden/jobs/deepspeed.yaml", ("train.py",)),
    "direct": Example("tests/golden/jobs/direct.yaml", ("train.py",)),
    "srun": Example("tests/golden/jobs/srun.yaml", ("train.py",)),
    "awkward": Example("tests/golden/jobs/awkward.yaml", folders=("odd folder $HOME's",)),
}


def lay_out(example: Example, checkout: Path) -> str:
    """Make a checkout with empty scripts and the job file; return the job file's name in it."""
    (checkout / ".git").mkdir(parents=True)
    for script in example.scripts:
        (checkout / script).parent.mkdir(parents=True, exist_ok=True)
        (checkout / script).touch()
    for folder in example.folders:
        (checkout / folder).mkdir()
    for job in (example.job, *example.beside):
        name = Path(job).name
        (checkout / name).write_bytes((REPOSITORY / job).read_bytes())
    return Path(example.job).name


def dry_run(checkout: Path, job: str, *words: str) -> bytes:
    """Return what the dry-run prints, byte for byte, as if the checkout lay at ROOT."""
    words = ("run", "--dry-run", *words, "--project-root", ROOT, job)
    done = cli_process.run(words, os.environ, checkout, 60)
    assert done.returncode == 0, done.stderr
    return done.stdout.encode()


@cache
def planned(name: str, checkout: Path) -> Any:
    """Return the one node of an example's plan, as `--dry-run --json` shows it."""
    job = lay_out(EXAMPLES[name], checkout)
    (node,) = json.loads(dry_run(checkout, job, "--json"))["nodes"]
    return node


def recorded(name: str) -> Any:
    """Return a launch as the system's own script or document makes it."""
    return json.loads((LAUNCHES / f"{name}.json").read_text(encoding="utf-8"))


def rewrite() -> None:
    """Write every golden file anew, and remove those of no example."""
    for old in (*GOLDEN.glob("*.json"), *GOLDEN.glob("*.sh")):
        old.unlink()
    for name, example in EXAMPLES.items():
        with tempfile.TemporaryDirectory() as folder:
            job = lay_out(example, Path(folder))
            for form, flag in FORMS.items():
                text = dry_run(Path(folder), job, flag, *example.options)
                (GOLDEN / f"{name}.{form}").write_bytes(text)


if __name__ == "__main__":
    rewrite()
