from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.cli_process import safelaunch

from safelaunch.launchers import NAMES

if TYPE_CHECKING:
    from pathlib import Path

JOB = """\
name: contract
launcher: torchrun
script: train.py
profile: rtx5090
hosts: [a, b]
processes: 2
env: {A: 1, GONE: null}
env_from: [HF_TOKEN]
args: {home: $HOME}
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("project")
    (folder / "train.py").touch()
    (folder / "job.yaml").write_text(JOB)
    result = safelaunch(folder, "run", "--dry-run", "--json", "job.yaml")
    assert result.code == 0
    return json.loads(result.out)


@pytest.fixture(scope="module")
def node(printed: Any) -> Any:
    return printed["nodes"][1]


def load(folder: Path, *words: str) -> Any:
    return json.loads(safelaunch(folder, *words, "--json").out)


def test_a_plan_has_a_version(printed: Any) -> None:
    assert printed["version"] == 1


def test_a_plan_has_the_promised_keys(printed: Any) -> None:
    assert {"version", "name", "nodes", "warnings"} <= printed.keys()


def test_a_plan_has_every_node_in_rank_order(printed: Any) -> None:
    assert [(n["host"], n["node_rank"]) for n in printed["nodes"]] == [("a", 0), ("b", 1)]


def test_a_node_has_the_promised_keys(node: Any) -> None:
    assert {"host", "node_rank", "cwd", "argv", "env", "unset", "script"} <= node.keys()


def test_argv_is_a_list_of_words(node: Any) -> None:
    assert {type(word) for word in node["argv"]} == {str}


def test_slots_are_shown_by_name(node: Any) -> None:
    words = node["argv"]
    assert words[words.index("--master_port") + 1] == "<port>"


def test_a_variable_has_value_and_origin(node: Any) -> None:
    assert {"value": "1", "origin": "job.yaml:7:10"}.items() <= node["env"]["A"].items()


def test_a_variable_of_a_profile_says_why(node: Any) -> None:
    assert node["env"]["NCCL_P2P_DISABLE"]["why"]


def test_a_value_that_the_target_works_out_is_null_and_explained(node: Any) -> None:
    threads = node["env"]["OMP_NUM_THREADS"]
    assert (threads["value"], bool(threads["computed"])) == (None, True)


def test_a_secret_is_shown_as_stars(node: Any) -> None:
    assert node["env"]["HF_TOKEN"]["value"] == "***"


def test_a_removed_variable_is_unset_and_not_set(node: Any) -> None:
    assert ("GONE" in node["unset"], "GONE" in node["env"]) == (True, False)


def test_nothing_is_unset_twice(node: Any) -> None:
    assert len(set(node["unset"])) == len(node["unset"])


def test_the_script_is_the_text_of_launch_sh(node: Any) -> None:
    assert node["script"].startswith("#!/usr/bin/env bash\n")


def test_a_warning_has_id_message_and_where(printed: Any) -> None:
    assert [w.keys() for w in printed["warnings"] if w["id"] == "not-expanded"] == [
        {"id", "message", "where"}
    ]


def test_a_slot_without_a_bound_value_is_never_null_silently(node: Any) -> None:
    silent = [n for n, v in node["env"].items() if v["value"] is None and "computed" not in v]
    assert silent == []


def test_several_files_give_plans_and_errors(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "good.yaml").write_text("launcher: python\nscript: train.py\n")
    (tmp_path / "bad.yaml").write_text("launcher: pithon\n")
    result = safelaunch(tmp_path, "run", "--dry-run", "--json", "bad.yaml", "good.yaml")
    data = json.loads(result.out)
    assert ([p["file"] for p in data["plans"]], data["errors"]) == (
        ["good.yaml"],
        [
            {
                "file": "bad.yaml",
                "message": "unknown launcher `pithon`",
                "where": "bad.yaml:1:11",
                "hint": "did you mean `python`?",
            }
        ],
    )


def test_profiles_are_listed_with_their_reasons(tmp_path: Path) -> None:
    data = load(tmp_path, "profiles")
    rtx = next(p for p in data["profiles"] if p["name"] == "rtx5090")
    assert (data["version"], {"name", "value", "why", "cost", "source", "workaround", "when"}) == (
        1,
        rtx["env"][0].keys() - {"example"},
    )


def test_one_profile_is_a_list_of_one(tmp_path: Path) -> None:
    assert [p["name"] for p in load(tmp_path, "profiles", "cpu")["profiles"]] == ["cpu"]


def test_launchers_are_listed_with_what_they_run(tmp_path: Path) -> None:
    data = load(tmp_path, "launchers")
    runs = {entry["name"]: entry["runs"] for entry in data["launchers"]}
    assert (data["version"], tuple(runs)) == (1, tuple(NAMES))
    assert (runs["torchrun"], runs["swift"]) == (["script", "module"], ["command"])
