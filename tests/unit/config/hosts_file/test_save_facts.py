"""`facts:` of a host's entry, written by safelaunch into a file that a person wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.project import Project

from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.config.hosts_file.save_facts import save
from safelaunch.config.resolve import Flags
from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

FACTS = {"nccl": "2.27.3", "driver": "570.86.10", "torch": "2.8.0+cu128", "cuda": "12.8"}
FLOW = 'facts: {nccl: "2.27.3", driver: "570.86.10", torch: "2.8.0+cu128", cuda: "12.8"}'
TEXT = """# mine
hosts:
  a:
    user: me  # always
  b:  # the new one
    profile: rtx5090
FACTS
  c: {profile: cpu, address: "10.0.0.5"}  # small
  d:
groups: {all: [a, b]}
"""
WRITTEN = {
    "one line": (
        '    facts: {nccl: "2.26.2", driver: 1.2}  # of May',
        f"    {FLOW}  # of May",
    ),
    "a line each": (
        """\
    facts:  # found by hand
      # the wheel's
      nccl: 2.26.2   # too old
      driver: '570.86.10'""",
        """\
    facts:  # found by hand
      # the wheel's
      nccl: "2.27.3"   # too old
      driver: '570.86.10'
      torch: "2.8.0+cu128"
      cuda: "12.8\"""",
    ),
    "empty": ("    facts:  # later", f"    {FLOW}  # later"),
    "nothing in it": ("    facts: {}", f"    {FLOW}"),
}


@pytest.mark.parametrize("what", WRITTEN)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["unix", "windows"])
def test_facts_are_replaced_and_all_else_stays(what: str, end: str) -> None:
    before, after = (TEXT.replace("FACTS", written).replace("\n", end) for written in WRITTEN[what])
    assert save(before, "hosts.yaml", "b", FACTS) == after


def test_an_entry_without_facts_gets_a_line() -> None:
    before = TEXT.replace("FACTS\n", "")
    expected = before.replace("# the new one\n", f"# the new one\n    {FLOW}\n")
    assert save(before, "hosts.yaml", "b", FACTS) == expected


def test_an_entry_in_one_line_gets_them_in_it() -> None:
    before = TEXT.replace("FACTS\n", "")
    expected = before.replace('"10.0.0.5"}', f'"10.0.0.5", {FLOW}}}')
    assert save(before, "hosts.yaml", "c", FACTS) == expected


def test_an_entry_that_says_nothing_gets_its_first_line() -> None:
    before = TEXT.replace("FACTS\n", "")
    assert f"  d:\n    {FLOW}\ngroups" in save(before, "hosts.yaml", "d", FACTS)


@pytest.mark.parametrize("text", ["", "# none yet\n", "hosts:\n  a:\n    user: me\n"])
def test_an_entry_that_is_missing_is_added(text: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(save(text, "hosts.yaml", "localhost", FACTS))
    assert hosts_file.load_default(str(tmp_path)).machines["localhost"].facts == FACTS
    assert path.read_text().startswith(text.rstrip("\n"))


@pytest.mark.parametrize("name", ["a", "b", "c", "d", "localhost"])
@pytest.mark.parametrize("what", WRITTEN)
def test_a_saved_file_reads_as_before_but_for_the_facts(
    what: str, name: str, tmp_path: Path
) -> None:
    text = TEXT.replace("FACTS", WRITTEN[what][0])
    (tmp_path / "hosts.yaml").write_text(text)
    before = hosts_file.load_default(str(tmp_path))
    (tmp_path / "hosts.yaml").write_text(save(text, "hosts.yaml", name, FACTS))
    after = hosts_file.load_default(str(tmp_path))
    assert after.machines.pop(name).facts == FACTS
    before.machines.pop(name, None)
    assert (after.machines, after.groups) == (before.machines, before.groups)


@pytest.mark.parametrize("name", ["a", "b", "c", "d", "localhost"])
@pytest.mark.parametrize("what", WRITTEN)
def test_a_second_save_changes_nothing(what: str, name: str) -> None:
    once = save(TEXT.replace("FACTS", WRITTEN[what][0]), "hosts.yaml", name, FACTS)
    assert save(once, "hosts.yaml", name, FACTS) == once


def test_what_was_not_found_this_time_stays() -> None:
    text = "hosts:\n  a:\n    facts: {nccl: 2.26.2, torch: 2.7.0}\n"
    new = save(text, "hosts.yaml", "a", {"nccl": "2.27.3"})
    assert new == 'hosts:\n  a:\n    facts: {nccl: "2.27.3", torch: "2.7.0"}\n'


def test_nothing_found_changes_nothing() -> None:
    assert save("hosts: {}  # mine", "hosts.yaml", "a", {}) == "hosts: {}  # mine"


@pytest.mark.parametrize(
    "text",
    [
        "hosts:\n  a: {profile: cpu,\n    user: me}\n",
        "hosts:\n  a:\n    facts: {nccl: 2.26.2,\n      torch: 2.7.0}\n",
        "hosts:\n  a: ~\n",
        "hosts:\n  a:\n    facts:\n      nccl: >\n        2.26.2\n",
        "hosts:\n  b: &b\n    user: you\n  a: *b\n",
    ],
)
def test_what_only_its_author_should_change_is_left_alone(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        save(text, "hosts.yaml", "a", FACTS)
    if "anchor" not in caught.value.message:
        assert FLOW in (caught.value.hint or "")


def test_a_gated_profile_no_longer_asks_for_what_was_saved(tmp_path: Path) -> None:
    project = Project(tmp_path)
    job = "profile: rtx5090\nlauncher: torchrun\nscript: train.py\nprocesses: 4\n"
    flags = Flags(hosts_file="hosts.yaml")
    project.write(text := "hosts:\n  localhost:\n    profile: rtx5090\n", "hosts.yaml")
    assert "undeclared-fact" in [w.id for w in project.plan(job, flags).warnings]
    project.write(save(text, "hosts.yaml", "localhost", FACTS), "hosts.yaml")
    plan = project.plan(job, flags)
    assert [w.id for w in plan.warnings] == []
    assert "NCCL_SHM_DISABLE" not in plan.nodes[0].env
