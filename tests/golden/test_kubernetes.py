"""What a dry-run prints of a job for Kubernetes, byte for byte: no cluster, no kubectl.

After a wanted change: `PYTHONPATH=tests python tests/golden/test_kubernetes.py` rewrites the golden
files; read the diff.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from support import cli_process
from support.example_checkouts import GOLDEN

from safelaunch.cli.plan_text.plan import print_explanation, print_plan
from safelaunch.config.resolve import Flags, resolve_file
from safelaunch.plan.build import make_plan
from safelaunch.plan.serialize import plan_json, script_of

if TYPE_CHECKING:
    from safelaunch.config.resolve import Resolved
    from safelaunch.model import Plan

FILES = {"job.yaml": "jobs/kubernetes.yaml", "hosts.yaml": "hosts/kubernetes.yaml"}
KINDS = ("job", "trainjob")


def planned(folder: Path, kind: str = "job") -> tuple[Resolved, Plan]:
    (folder / ".git").mkdir()
    (folder / "train.py").touch()
    for name, source in FILES.items():
        (folder / name).write_bytes((GOLDEN / source).read_bytes())
    sets = (f"kubernetes.kind={kind}",)
    flags = Flags(engine="kubernetes", hosts_file="hosts.yaml", sets=sets)
    resolved = resolve_file("job.yaml", flags, str(folder))
    return resolved, make_plan(resolved)


def printed(folder: Path, kind: str) -> str:
    """Return the manifest, or for `explain` where each part of it comes from."""
    resolved, plan = planned(folder, "job" if kind == "explain" else kind)
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
        print_explanation(resolved, plan) if kind == "explain" else print_plan(plan)
    output.flush()
    return output.buffer.getvalue().decode()


def golden(kind: str) -> Path:
    return GOLDEN / f"kubernetes-{kind}.{'txt' if kind == 'explain' else 'yaml'}"


@pytest.mark.parametrize("kind", [*KINDS, "explain"])
def test_a_job_for_kubernetes_is_shown_in_the_same_bytes(kind: str, tmp_path: Path) -> None:
    assert printed(tmp_path, kind) == golden(kind).read_bytes().decode()


@pytest.mark.parametrize("kind", KINDS)
def test_the_launch_script_and_the_data_of_the_plan_are_those_of_the_manifest(
    kind: str, tmp_path: Path
) -> None:
    plan = planned(tmp_path, kind)[1]
    engine = json.loads(json.dumps(plan_json(plan)["engine"]))
    written = list(yaml.safe_load_all(golden(kind).read_text(encoding="utf-8")))
    assert (engine["name"], engine["documents"]) == ("kubernetes", written)
    assert list(yaml.safe_load_all(engine["manifest"])) == written
    assert written[0]["data"] == {"launch.sh": script_of(plan, plan.nodes[0])}
    assert {"request": "queue: team-a", "origin": "hosts.yaml:16:14"} in engine["origins"]


def test_the_command_prints_the_manifest_alone_and_submits_none(tmp_path: Path) -> None:
    planned(tmp_path)
    words = ["run", "--on", "kubernetes", "--hosts", "hosts.yaml", "job.yaml"]
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path), "SAFELAUNCH_HOME": str(tmp_path / "home")}
    shown = cli_process.run([*words, "--dry-run"], env, tmp_path, 60)
    assert (shown.returncode, shown.stdout) == (0, golden("job").read_text(encoding="utf-8"))
    done = cli_process.run(words, env, tmp_path, 60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: --on kubernetes: safelaunch does not submit to Kubernetes" in done.stderr
    assert "--dry-run JOB.yaml > job.k8s.yaml; kubectl apply -f job.k8s.yaml" in done.stderr
    assert not (tmp_path / "home").exists()


def test_a_cluster_is_listed_as_no_machine_and_not_reached_by_ssh(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "hosts.yaml").write_bytes((GOLDEN / FILES["hosts.yaml"]).read_bytes())
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path), "SAFELAUNCH_HOME": str(home)}
    shown = cli_process.run(["hosts"], env, tmp_path, 60).stdout
    assert "cluster    Kubernetes    h100" in shown
    done = cli_process.run(["facts", "--host", "cluster"], env, tmp_path, 60)
    assert done.returncode != 0
    assert "`cluster` is a cluster of Kubernetes, no machine that SSH reaches" in done.stderr


if __name__ == "__main__":
    for name_of_kind in (*KINDS, "explain"):
        with tempfile.TemporaryDirectory() as folder_name:
            text = printed(Path(folder_name), name_of_kind)
        golden(name_of_kind).write_text(text, encoding="utf-8")
