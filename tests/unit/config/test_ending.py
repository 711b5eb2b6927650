"""The keys about the end of a run, in the job and in the hosts file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.project import PYTHON, Project

from safelaunch.config.resolve import Flags
from safelaunch.model import Ending, MaxCost, Preemption

if TYPE_CHECKING:
    from pathlib import Path

SHUTDOWN = "shutdown: {command: sudo shutdown -h now}\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def ending(project: Project, text: str, hosts: str = "") -> Ending:
    flags = Flags()
    if hosts:
        project.write(f"hosts:\n  localhost:\n    {hosts}\n", "hosts.yaml")
        flags = Flags(hosts_file="hosts.yaml")
    result = project.plan(PYTHON + text, flags).supervision.ending
    return result or Ending()


def test_a_command_is_a_line_of_bash_or_a_list_of_words(project: Project) -> None:
    text = "on_end: ['./notify.sh $USER', [curl, --data, a b, 'http://x']]\non_success: ./go.sh\n"
    result = ending(project, text)
    assert result.on_end == (
        ("bash", "-c", "./notify.sh $USER"),
        ("curl", "--data", "a b", "http://x"),
    )
    assert result.on_success == (("bash", "-c", "./go.sh"),)


def test_the_program_of_an_upload_follows_from_its_place(project: Project) -> None:
    for place, program in (("s3://b/x", "fsspec"), ("s3:b/x", "rclone"), (":local:/x", "rclone")):
        upload = ending(project, f"upload: {{to: '{place}', files: [out]}}\n").upload
        assert upload is not None
        assert upload.program == program


def test_commands_of_the_host_come_after_those_of_the_job(project: Project) -> None:
    result = ending(project, "on_end: a\n", "on_end: [b, c]")
    assert [words[2] for words in result.on_end] == ["a", "b", "c"]


def test_the_machine_of_a_host_is_turned_off_unless_the_job_says_off(project: Project) -> None:
    host = "shutdown: {command: poweroff, grace: 1m}"
    shutdown = ending(project, "", host).shutdown
    assert shutdown is not None
    assert (shutdown.command, shutdown.grace) == (("bash", "-c", "poweroff"), 60)
    assert ending(project, "shutdown: off\n", host).shutdown is None
    own = ending(project, SHUTDOWN, host).shutdown
    assert own is not None
    assert own.command[2] == "sudo shutdown -h now"


def test_price_and_budget_may_stand_in_different_files(project: Project) -> None:
    project.write("hosts:\n  localhost: {max_cost: {per_hour: 1.2}}\n", "hosts.yaml")
    plan = project.plan(PYTHON + "max_cost: {total: 40}\n", Flags(hosts_file="hosts.yaml"))
    assert plan.supervision.max_cost == MaxCost(40, 1.2)


def test_a_preset_of_a_cloud_may_be_changed(project: Project) -> None:
    plan = project.plan(PYTHON + "preemption: {preset: aws, grace: 60s}\n")
    assert plan.supervision.preemption == Preemption(
        url="http://169.254.169.254/latest/meta-data/spot/instance-action", kind="aws", grace=60
    )
    assert project.plan(PYTHON + "preemption: off\n").supervision.preemption is None


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("on_end: [[stop, $ID]]\n", "`$ID` in a list of words: no shell replaces it", "3:17"),
        ("on_end: [['~/stop']]\n", "`~/stop` in a list of words: no shell replaces it", "3:11"),
        ("on_end: [' ']\n", "an empty command", "3:10"),
        (
            "on_end: [[]]\n",
            "expected a line of bash, or a list of words, got an empty list",
            "3:10",
        ),
        ("on_end: {a: b}\n", "expected a list of commands", "3:9"),
        ("on_end: TOKEN=abcdef ./x\n", "secret", "3:9"),
        ("upload: {to: 's3://b'}\n", "`upload` without `files`", "3:9"),
        ("upload: {files: [out]}\n", "`upload` without `to`", "3:9"),
        ("upload: {to: bucket, files: [o]}\n", "`bucket` is no place such as", "3:14"),
        ("upload: {to: 's3://b', with: rclone, files: [o]}\n", "is no place of rclone", "3:9"),
        ("upload: {to: 's3://b', files: [/o]}\n", "`/o` is absolute", "3:32"),
        ("shutdown: {grace: 5m}\n", "`shutdown` without `command`", "3:11"),
        ("shutdown: now\n", "expected `off`, or a mapping such as", "3:11"),
        ("max_cost: {total: 40}\n", "`max_cost` without `per_hour`", "3:11"),
        ("max_cost: {per_hour: 0}\n", "expected a number above 0", "3:22"),
        ("max_cost: {per_hour: -1}\n", "expected a number above 0", "3:22"),
        ("max_cost: {per_hour: 1e400}\n", "expected a number above 0", "3:22"),
        ("preemption: {every: 5s}\n", "`preemption` has no source", "3:13"),
        ("preemption: {file: x}\n", "`x` is not absolute", "3:20"),
        ("preemption: aw\n", "expected off, aws, gcp, azure, sigterm, or a mapping", "3:13"),
    ],
)
def test_bad_keys_are_refused_with_their_place(
    text: str, message: str, place: str, project: Project
) -> None:
    refusal = project.refused(PYTHON + text)
    assert message in refusal.message
    assert refusal.where == f"job.yaml:{place}"
