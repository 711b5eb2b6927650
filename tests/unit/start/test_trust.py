from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from safelaunch.config.resolve import Flags, resolve_file
from safelaunch.errors import Refused
from safelaunch.start import trust
from safelaunch.start.trust import Approvals, Reach, job_reaches

if TYPE_CHECKING:
    from pathlib import Path

JOB = """\
launcher: torchrun
processes: 1
script: train.py
hosts: [gpu1, me@203.0.113.7]
env_from: [HF_TOKEN]
assets:
  inside: models/a
  outside: ../models/b
  linked: link
"""
TOKEN = Reach("env", "HF_TOKEN", "variable HF_TOKEN: its value is sent there")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    (root / ".git").mkdir(parents=True)
    (root / "job.yaml").write_text(JOB)
    (root / "train.py").touch()
    (root / "link").symlink_to("/etc")
    return root


def reaches(checkout: Path, flags: Flags | None = None, *, assets: bool = True) -> list[str]:
    flags = flags or Flags(remote=True)
    resolved = resolve_file(str(checkout / "job.yaml"), flags, str(checkout))
    result = job_reaches(resolved, ["gpu1"], assets=assets)
    return [f"{reach.kind} {reach.value}" for reach in result]


def test_a_job_reaches_what_lies_outside_of_its_project(checkout: Path) -> None:
    outside = f"asset {checkout.parent}/models/b"
    assert reaches(checkout) == [outside, "asset /etc", "env HF_TOKEN", "host me@203.0.113.7"]
    assert reaches(checkout, assets=False) == ["env HF_TOKEN", "host me@203.0.113.7"]


def test_what_the_user_types_needs_no_question(checkout: Path) -> None:
    sets = ("assets.outside=/data/b", "assets.linked=null", "env_from=[HF_TOKEN]")
    assert reaches(checkout, Flags(sets=sets, remote=True, hosts=("new",))) == []


def test_what_was_allowed_for_a_checkout_is_asked_about_once(tmp_path: Path) -> None:
    Approvals(str(tmp_path)).add(["/a"], [TOKEN])
    approvals = Approvals(str(tmp_path))
    other = Reach("env", "AWS_SECRET_ACCESS_KEY", "")
    assert approvals.missing(["/a"], [TOKEN, other]) == [other]
    assert approvals.missing(["/b"], [TOKEN]) == [TOKEN]
    assert (tmp_path / trust.FILE).stat().st_mode & 0o777 == 0o600


def test_an_asset_that_all_hosts_have_by_a_push_needs_no_question(tmp_path: Path) -> None:
    asset = Reach("asset", "/models/b", "")
    approvals = Approvals(str(tmp_path))
    approvals.add(trust.on_hosts(["gpu1"]), [asset, TOKEN])
    assert approvals.missing(["/a"], [asset, TOKEN], ["gpu1"]) == [TOKEN]
    assert approvals.missing(["/a"], [asset], ["gpu1", "gpu2"]) == [asset]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1, "approved": [7, [], ["a"]]}'])
def test_a_damaged_record_allows_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / trust.FILE).write_text(text)
    assert Approvals(str(tmp_path)).missing(["/a"], [TOKEN]) == [TOKEN]


def test_without_a_terminal_the_start_is_refused_with_the_flag(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="for gpu1: variable HF_TOKEN") as raised:
        trust.confirm(Approvals(str(tmp_path)), "/a", [TOKEN], ["gpu1"], None)
    assert "--yes" in str(raised.value.hint)


def test_what_the_user_allows_is_not_asked_again_and_rerun_may_send_it(tmp_path: Path) -> None:
    home, questions = str(tmp_path), []

    def ask(question: str) -> bool:
        questions.append(question)
        return True

    for _ in range(2):
        trust.confirm(Approvals(home), "/a", [TOKEN], ["gpu1"], ask)
    assert len(questions) == 1
    assert "variable HF_TOKEN: its value is sent there" in questions[0]
    trust.confirm(Approvals(home), "run", [TOKEN], ["gpu1"], None, subjects=["host:gpu1"])
    with pytest.raises(Refused):
        trust.confirm(Approvals(home), "run", [TOKEN], ["gpu2"], None, subjects=["host:gpu2"])


def test_what_the_user_does_not_allow_is_asked_again(tmp_path: Path) -> None:
    home = str(tmp_path)
    with pytest.raises(Refused, match="nothing was sent"):
        trust.confirm(Approvals(home), "/a", [TOKEN], ["gpu1"], lambda _: False)
    assert Approvals(home).missing(["/a"], [TOKEN]) == [TOKEN]


def test_a_job_inside_its_project_asks_nothing_and_writes_nothing(tmp_path: Path) -> None:
    trust.confirm(Approvals(str(tmp_path)), "/a", [], ["gpu1"], None)
    assert list(tmp_path.iterdir()) == []
