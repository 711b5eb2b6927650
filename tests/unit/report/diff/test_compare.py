"""What `diff` finds between two runs, and what it leaves out."""

from __future__ import annotations

from typing import Any

from safelaunch.report.diff.compare import compare
from safelaunch.report.diff.model import Group, NodeSnapshot, RunSnapshot
from safelaunch.runtime.code.launch_record import EDITED
from safelaunch.runtime.records import (
    CodeRecord,
    Failure,
    PlanRecord,
    Provenance,
    RunRecord,
    Status,
)

PLAN: dict[str, Any] = {
    "launcher": "torchrun",
    "profile": "rtx5090",
    "nodes": [
        {
            "host": "localhost",
            "node_rank": 0,
            "cwd": "/p",
            "argv": ["python", "-m", "torch", "train.py", "--lr", "1e-3", "--seed", "1"],
            "env": {
                "NCCL_DEBUG": {"value": "WARN", "origin": "job.yaml:5:3"},
                "HF_TOKEN": {"value": "***", "origin": "env_from"},
            },
            "unset": [],
            "setup": [],
            "files": {"accelerate.yaml": "a: 1\nb: 2\n"},
            "script": "exec",
        }
    ],
    "supervision": {"capture": True},
}
RUN = {"hostname": "h1", "hosts": ["localhost"], "world_size": 2, "safelaunch": "0.1.0"}
RECORD: dict[str, Any] = {
    "python": "3.11.7",
    "packages": {"torch": "2.6.0"},
    "git": {"commit": "a" * 40, "changed": [], "more_changed": 0},
    "files": {"train.py": "11", "job.yaml": "22"},
}
ORDER = ("outcome", "code", "command", "topology", "variables", "versions", "host", "settings")


def side(name: str = "a", **changes: Any) -> RunSnapshot:
    plan = {**PLAN, "nodes": [{**PLAN["nodes"][0], **changes.pop("node", {})}]}
    plan.update(changes.pop("plan", {}))
    run, record = {**RUN, **changes.pop("run", {})}, {**RECORD, **changes.pop("record", {})}
    status = Status.from_json(changes.pop("status", {"state": "succeeded", "exit_code": 0}))
    failure = changes.pop("failure", None)
    node = NodeSnapshot(
        PlanRecord.from_json(plan),
        RunRecord.from_json(run),
        Provenance.from_json(record),
        changes.pop("facts", {}),
    )
    return RunSnapshot(
        name, status, None if failure is None else Failure.from_json(failure), (node,)
    )


def changed(
    first: RunSnapshot, second: RunSnapshot
) -> dict[str, list[tuple[str, str | None, str | None]]]:
    groups: list[Group] = compare(first, second)
    return {
        group.name: [(c.what, c.was, c.now) for c in group.changes]
        for group in groups
        if group.changes
    }


def test_two_runs_of_the_same_plan_have_no_difference() -> None:
    assert changed(side(), side("b")) == {}


def test_the_groups_have_one_order() -> None:
    assert tuple(group.name for group in compare(side(), side())) == ORDER


def test_a_changed_value_is_shown_with_its_option() -> None:
    argv = ["python", "-m", "torch", "train.py", "--lr", "2e-3", "--seed", "1", "--amp"]
    assert changed(side(), side(node={"argv": argv})) == {
        "command": [("command", "--lr 1e-3", "--lr 2e-3"), ("command", None, "--amp")]
    }


def test_a_variable_is_shown_with_its_origins() -> None:
    env = {
        "NCCL_DEBUG": {"value": "INFO", "origin": "--set"},
        "HF_TOKEN": PLAN["nodes"][0]["env"]["HF_TOKEN"],
    }
    assert changed(side(), side(node={"env": env})) == {
        "variables": [("NCCL_DEBUG", "WARN (job.yaml:5:3)", "INFO (--set)")]
    }  # fmt: skip


def test_other_values_come_before_other_origins() -> None:
    was = {"A": {"value": "1", "origin": "x"}, "B": {"value": "1", "origin": "x"}}
    now = {"A": {"value": "1", "origin": "y"}, "B": {"value": "2", "origin": "x"}}
    changes = changed(side(node={"env": was}), side(node={"env": now}))
    assert [name for name, *_ in changes["variables"]] == ["B", "A"]


def test_a_secret_that_differs_is_said_to_and_not_shown() -> None:
    envs = [{"MY_PASSWORD": {"value": f"hunter{n}", "origin": "x"}} for n in (1, 2)]
    changes = changed(side(node={"env": envs[0]}), side(node={"env": envs[1]}))
    assert changes == {"variables": [("MY_PASSWORD", "<secret-1> (x)", "<secret-2> (x)")]}


def test_a_secret_among_the_words_is_not_shown() -> None:
    argv = ["train.py", "--token", "abc123def456"]
    assert "abc123" not in str(changed(side(), side(node={"argv": argv})))


def test_code_is_its_commit_and_its_changed_files() -> None:
    git = {"commit": "b" * 40, "changed": [" M train.py"], "more_changed": 0}
    assert changed(side(), side(record={"git": git})) == {
        "code": [("commit", "a" * 40, "b" * 40), ("changed file", None, " M train.py")]
    }


def test_versions_differ_by_package() -> None:
    changes = changed(side(), side(record={"packages": {"torch": "2.7.0", "trl": "0.9"}}))
    assert changes == {"versions": [("torch", "2.6.0", "2.7.0"), ("trl", None, "0.9")]}


def test_the_outcome_comes_with_what_failed() -> None:
    failure = {"what": "ValueError: x", "rank": 1, "class": "user-code-exception"}
    other = side(status={"state": "failed", "exit_code": 1}, failure=failure)
    assert changed(side(), other) == {
        "outcome": [
            ("state", "succeeded", "failed"),
            ("exit code", "0", "1"),
            ("failure", None, "rank 1: ValueError: x (user-code-exception)"),
        ]
    }


def test_topology_and_launcher_are_compared() -> None:
    changes = changed(side(), side(plan={"launcher": "accelerate"}, run={"world_size": 4}))
    assert changes == {
        "topology": [("launcher", "torchrun", "accelerate"), ("world size", "2", "4")]
    }


def test_lines_of_a_config_file_are_compared() -> None:
    changes = changed(side(), side(node={"files": {"accelerate.yaml": "a: 1\nb: 3\n"}}))
    assert changes == {"command": [("accelerate.yaml", "b: 2", "b: 3")]}


def test_another_machine_is_told_with_what_is_known_of_both() -> None:
    facts = {"gpus": {"driver": "550.1", "cards": []}, "system": {"kernel": "6.1"}}
    other = {"gpus": {"driver": "560.2", "cards": []}}
    changes = changed(side(facts=facts), side(run={"hostname": "h2"}, facts=other))
    assert changes == {"host": [("machine", "h1", "h2"), ("driver", "550.1", "560.2")]}


def test_ids_times_and_processes_are_no_difference() -> None:
    run = {"id": "x", "created_at": 1.0, "starter": {"pid": 1}, "socket": "/tmp/s"}
    assert changed(side(), side("b", run=run)) == {}


def test_what_was_never_recorded_is_said_to_be_unknown() -> None:
    empty = RunSnapshot("b", Status(), None, (NodeSnapshot(None, None, None, {}),))
    unknown = {group.name: group.unknown for group in compare(side(), empty) if group.unknown}
    assert unknown["versions"] == "nothing is recorded for b"
    assert set(unknown) == {"code", "command", "topology", "variables", "versions", "settings"}


def test_damaged_files_make_no_traceback() -> None:
    odd: dict[str, Any] = {
        "nodes": [None, 3, {"env": [], "argv": 7, "files": "x"}],
        "supervision": 1,
    }
    status = Status.from_json({"attempts": 3, "progress": []})
    run = RunRecord.from_json({"gpus": {}})
    record = Provenance.from_json({"git": 5, "packages": []})
    node = NodeSnapshot(PlanRecord.from_json(odd), run, record, {"gpus": 3})
    broken = RunSnapshot("b", status, Failure.from_json({"what": 7}), (node,))
    assert compare(side(), broken)
    assert compare(broken, broken)


def code(first: dict[str, Any], second: dict[str, Any]) -> Group:
    """Return the group of the code for two records."""
    both = side("a", record=first), side("b", record=second)
    return next(group for group in compare(*both) if group.name == "code")


def test_an_edit_is_seen_by_its_content_with_and_without_a_commit() -> None:
    dirty = {"commit": "a" * 40, "changed": [" M train.py"], "more_changed": 0}
    for git in (None, dirty):
        first = {"git": git, "files": {"train.py": "11"}}
        group = code(first, {"git": git, "files": {"train.py": "33", "new.py": "4"}})
        assert (group.changes, group.unknown) == (
            (("train.py", "content 11", "content 33"), ("new.py", None, "content 4")),
            "",
        )


def test_code_that_is_not_recorded_is_not_said_to_be_the_same() -> None:
    old = {"git": None, "files": None}
    dirty = {"commit": "a" * 40, "changed": [" M train.py"], "more_changed": 0}
    assert code(old, old).unknown == (
        "no git, and no file is recorded for a; no git, and no file is recorded for b"
    )
    assert "contents of changed files are not recorded for a" in (
        code({"git": dirty, "files": None}, {"git": dirty}).unknown
    )
    assert code({"git": None, "more_files": 9}, {}).unknown == "9 more files are not recorded for a"


def test_python_files_that_no_rank_imported_come_last_in_one_line() -> None:
    was = {"train.py": "1", "lib/a.py": "1", "lib/b.py": "1", "c.yaml": "1", "d.py": "1"}
    now = {"train.py": "2", "lib/a.py": "2", "lib/b.py": "2", "c.yaml": "2", "d.py": "2"}
    imported = ["train.py", "lib/a.py"]
    group = code({"files": was, "imported": imported}, {"files": now, "imported": imported})
    assert [change.what for change in group.changes] == [
        "train.py", "lib/a.py", "c.yaml", "differ, not imported",
    ]  # fmt: skip
    assert group.changes[-1].now == "lib/b.py, d.py"
    assert group.basis == "settings and files that a rank imported"
    group = code({"files": was, "imported": imported}, {"files": now})
    assert len(group.changes) == len(was)
    assert group.basis == "files on disk: what b imported is not recorded"


def test_all_files_that_were_sent_are_compared_for_two_runs_on_hosts() -> None:
    record = {"cwd": "/h/p/exp", "imported": ["train.py"], "files": {"train.py": "x"}}
    launched = CodeRecord(git=None, target="/h/p", manifest="1" * 64)
    files = {"exp/train.py": "1" * 64, "exp/old.py": "3", "words.txt": "a"}
    others = {**files, "exp/train.py": "2" * 64, "exp/old.py": "4", "words.txt": "b"}

    def remote(name: str, code_files: dict[str, str] | None) -> RunSnapshot:
        snapshot = side(name, record=record)
        node = snapshot.nodes[0]._replace(code=launched)
        return snapshot._replace(nodes=(node,), code_files=code_files)

    listed = changed(remote("a", files), remote("b", others))["code"]
    assert listed == [
        ("exp/train.py", "content " + "1" * 16, "content " + "2" * 16),
        ("words.txt", "content a", "content b"),
        ("differ, not imported", None, "exp/old.py"),
    ]
    # another laptop has no list of all files: those that the hosts recorded are compared
    assert changed(remote("a", files), remote("b", None)) == {}


def test_a_file_whose_content_at_the_launch_is_not_known_is_no_difference() -> None:
    edited = CodeRecord(not_stored={"train.py": EDITED, "big.py": "larger than 1 MiB"})
    snapshot = side(record={"files": {**RECORD["files"], "train.py": "33"}})
    other = snapshot._replace(nodes=(snapshot.nodes[0]._replace(code=edited),))
    group = next(group for group in compare(other, side("b")) if group.name == "code")
    assert (group.changes, group.unknown) == ((), "train.py changed during the start of a")


def test_a_branch_counts_where_both_runs_have_one() -> None:
    git = RECORD["git"] | {"branch": "main"}
    assert changed(side(record={"git": git}), side()) == {}
    other = {"git": {**git, "branch": "try"}}
    assert changed(side(record={"git": git}), side(record=other)) == {
        "code": [("branch", "main", "try")]
    }


def test_a_record_with_a_clean_commit_is_enough() -> None:
    assert code({"files": None}, {"files": None}) == Group("code")


def test_a_script_that_differs_by_the_name_of_the_run_is_the_same() -> None:
    scripts = [f"#!/usr/bin/env bash\n# {name}: python, node 0 of 1\nexec x\n" for name in "ab"]
    assert changed(*(side(node={"script": script}) for script in scripts)) == {}


def test_another_transport_of_nccl_is_a_difference() -> None:
    nccl = {"versions": ["2.27.3"], "transports": ["P2P/CUMEM"], "networks": ["IB"], "channels": 8}
    before = side(status={"state": "succeeded", "nccl": nccl})
    after = side(status={"state": "succeeded", "nccl": {**nccl, "transports": ["SHM/direct"]}})
    (host,) = [group for group in compare(before, after) if group.name == "host"]
    assert [tuple(change) for change in host.changes] == [
        ("NCCL transports", "P2P/CUMEM", "SHM/direct")
    ]


def test_a_run_without_a_log_of_nccl_does_not_differ_by_it() -> None:
    before = side(status={"state": "succeeded", "nccl": {"versions": ["2.27.3"]}})
    (host,) = [group for group in compare(before, side()) if group.name == "host"]
    assert host.changes == ()
