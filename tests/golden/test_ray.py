"""What a dry-run prints of a job for Ray, byte for byte: no Ray, no network.

After a wanted change: `PYTHONPATH=tests python tests/golden/test_ray.py` rewrites the golden
files; read the diff.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support import cli_process
from support.engine_golden import FORMS, planned, printed, rewrite
from support.example_checkouts import GOLDEN, ROOT

from safelaunch.plan.serialize import freeze, plan_json, thaw

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("form", FORMS)
def test_a_job_for_ray_is_shown_in_the_same_bytes(form: str, tmp_path: Path) -> None:
    golden = GOLDEN / f"ray-{form}.txt"
    assert printed("ray", tmp_path, form) == golden.read_bytes().decode()


def test_the_command_prints_it_without_a_cluster(tmp_path: Path) -> None:
    planned("ray", tmp_path)
    words = ["run", "--on", "ray", "--dry-run", "--hosts", "hosts.yaml", "ray.yaml"]
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    done = cli_process.run([*words, "--project-root", ROOT], env, tmp_path, 60)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == (GOLDEN / "ray-plan.txt").read_text(encoding="utf-8")


def test_an_address_where_no_ray_answers_starts_nothing_and_says_what_to_do(tmp_path: Path) -> None:
    planned("ray", tmp_path)
    words = ["run", "--on", "ray", "--hosts", "hosts.yaml", "ray.yaml"]
    words += ["--set", "ray.address=http://127.0.0.1:9"]
    home = tmp_path / "home"
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path), "SAFELAUNCH_HOME": str(home)}
    unset = cli_process.run(words, env, tmp_path, 60)
    done = cli_process.run(words, {**env, "RAY_TOKEN": "t"}, tmp_path, 60)
    assert ("RAY_TOKEN is not set" in unset.stderr, unset.returncode) == (True, 2)
    assert "no Ray answers at http://127.0.0.1:9: Connection refused" in " ".join(
        done.stderr.split()
    )
    assert done.returncode == 4
    assert not home.exists()


def test_the_plan_as_data_has_what_is_submitted(tmp_path: Path) -> None:
    plan = planned("ray", tmp_path)[1]
    engine = json.loads(json.dumps(plan_json(plan)["engine"]))
    assert (engine["name"], engine["address"]) == ("ray", "https://ray.example.com:8265/")
    assert engine["request"]["submission_id"] == "<run-id>"
    assert {"request": "cpus: 48", "origin": "hosts.yaml:8:13"} in engine["origins"]


def test_a_recorded_plan_submits_the_same(tmp_path: Path) -> None:
    plan = planned("ray", tmp_path)[1]
    assert plan_json(thaw(freeze(plan)))["engine"] == plan_json(plan)["engine"]


if __name__ == "__main__":
    rewrite("ray")
