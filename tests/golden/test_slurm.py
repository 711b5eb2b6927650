"""What a dry-run prints of a job for Slurm, byte for byte: no cluster, no sbatch, no network.

After a wanted change: `PYTHONPATH=tests python tests/golden/test_slurm.py` rewrites the golden
files; read the diff.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from support import cli_process
from support.engine_golden import FORMS, planned, printed, rewrite
from support.example_checkouts import GOLDEN, ROOT

from safelaunch.cli.plan_text.plan import print_plan
from safelaunch.config.resolve import Flags, resolve_file
from safelaunch.engines.slurm.batch_script import sbatch_script
from safelaunch.plan.build import make_plan
from safelaunch.plan.serialize import freeze, plan_json, thaw

CONTAINERS = GOLDEN / "slurm-containers.txt"
IMAGES = {
    "apptainer": "/images/torch.sif",
    "pyxis": "/images/torch.sqsh",
    "charliecloud": "/images/torch",
}
EXAMPLE = GOLDEN.parent.parent / "examples" / "lightrft"


@pytest.mark.parametrize("form", FORMS)
def test_a_job_for_slurm_is_shown_in_the_same_bytes(form: str, tmp_path: Path) -> None:
    golden = GOLDEN / f"slurm-{form}.txt"
    assert printed("slurm", tmp_path, form) == golden.read_bytes().decode()


def srun_lines(folder: Path) -> str:
    """Return how srun starts the supervisors in the containers of each tool."""
    planned("slurm", folder)
    text = ""
    for engine, image in IMAGES.items():
        sets = (f"container={{engine: {engine}, image: {image}, mounts: [/data]}}",)
        flags = Flags(engine="slurm", hosts_file="hosts.yaml", project_root=ROOT, sets=sets)
        script = sbatch_script(make_plan(resolve_file("slurm.yaml", flags, str(folder))))
        lines = script[script.index("  srun") : script.index(" || code")]
        text += f"# {engine}\n{lines}\n\n"
    return text


def test_the_supervisors_are_started_in_containers_in_the_same_bytes(tmp_path: Path) -> None:
    assert srun_lines(tmp_path) == CONTAINERS.read_text(encoding="utf-8")


def test_the_command_prints_it_without_a_cluster(tmp_path: Path) -> None:
    planned("slurm", tmp_path)
    words = ["run", "--on", "slurm", "--dry-run", "--hosts", "hosts.yaml", "slurm.yaml"]
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path), "SLURM_CONF": str(tmp_path / "none")}
    done = cli_process.run([*words, "--project-root", ROOT], env, tmp_path, 60)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == (GOLDEN / "slurm-plan.txt").read_text(encoding="utf-8")


def test_a_machine_without_slurm_starts_nothing_and_says_what_to_do(tmp_path: Path) -> None:
    planned("slurm", tmp_path)
    words = ["run", "--on", "slurm", "--hosts", "hosts.yaml", "slurm.yaml"]
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path), "SAFELAUNCH_HOME": str(tmp_path / "home")}
    done = cli_process.run(words, env, tmp_path, 60)
    assert "no `site-wrapper` on PATH" in done.stderr  # the first word that submits
    assert done.returncode == 2
    assert not (tmp_path / "home").exists()


def test_the_plan_as_data_has_what_is_submitted(tmp_path: Path) -> None:
    plan = planned("slurm", tmp_path)[1]
    engine = json.loads(json.dumps(plan_json(plan)["engine"]))
    assert engine["name"] == "slurm"
    assert engine["submit"][-2:] == ["--parsable", "<run-folder>/batch.sh"]
    assert engine["script"] == sbatch_script(plan)
    assert {"words": ["--account=p123"], "origin": "hosts.yaml:7:16"} in engine["directives"]


def test_a_recorded_plan_submits_the_same(tmp_path: Path) -> None:
    plan = planned("slurm", tmp_path)[1]
    assert plan_json(thaw(freeze(plan)))["engine"] == plan_json(plan)["engine"]


def test_nodes_that_differ_in_their_number_alone_are_shown_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned("slurm", tmp_path)
    flags = Flags(engine="slurm", sets=("nodes=40",))
    print_plan(make_plan(resolve_file("slurm.yaml", flags, str(tmp_path))))
    shown = capsys.readouterr().out
    assert shown.count("# launch.sh of ") == 2
    assert "# launch.sh of nodes 1 to 39, where it differs\n  --node_rank <node-rank> \\\n" in shown


def test_the_example_starts_what_the_job_of_one_machine_does_on_two_nodes(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    script = tmp_path / "examples/gsm8k_geo3k/train_colocate.py"
    script.parent.mkdir(parents=True)
    script.touch()
    for file in EXAMPLE.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    plan = make_plan(resolve_file("grpo.yaml", Flags(), str(tmp_path)))
    slurm_plan = make_plan(resolve_file("slurm.yaml", Flags(engine="slurm"), str(tmp_path)))
    own, first = list(map(str, slurm_plan.nodes[1].argv)), list(map(str, plan.nodes[0].argv))
    program = own.index("examples/gsm8k_geo3k/train_colocate.py")
    assert " ".join(own[:program]).endswith(
        "--nnodes 2 --nproc_per_node 8 --node_rank 1 --master_addr <master-addr> "
        "--master_port <port>"
    )
    words = first[first.index("examples/gsm8k_geo3k/train_colocate.py") :]
    pairs = zip(own[program:], words, strict=True)
    assert [pair for pair in pairs if pair[0] != pair[1]] == [("256", "128"), ("256", "128")]
    assert "#SBATCH --gpus-per-node=8" in sbatch_script(slurm_plan)
    assert "#SBATCH --cpus-per-task=96" in sbatch_script(slurm_plan)
    assert slurm_plan.warnings == plan.warnings


if __name__ == "__main__":
    rewrite("slurm")
    with tempfile.TemporaryDirectory() as place:
        CONTAINERS.write_text(srun_lines(Path(place)), encoding="utf-8")
