"""The files of claims, between processes of this user; other users are in integration/runs."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from support.workspace import wait_for

from safelaunch.runtime.card_claims import claims, folder_path, named
from safelaunch.runtime.cards import report
from safelaunch.runtime.cards.inventory import MachineCard
from safelaunch.runtime.records import CardClaim, CardRequest, RunRecord

if TYPE_CHECKING:
    from pathlib import Path

HOLDER = """
import sys, time
from safelaunch.runtime.card_claims import claims
from safelaunch.runtime.records import CardClaim
path = sys.argv[1]
with claims.locked_folder(path, 1) as folder:
    own = claims.create(path, folder, CardClaim(run="other-run", count=1), is_waiting=False)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> str:
    path = tmp_path / "claims"
    path.mkdir(mode=0o700)
    return str(path)


def claim(
    path: str, run: str = "run-1", priority: int = 0, *, is_waiting: bool = True
) -> claims.OwnClaim:
    with claims.locked_folder(path, 1.0) as fd:
        record = CardClaim(run=run, count=2)
        return claims.create(path, fd, record, priority, is_waiting=is_waiting)


def runs(path: str) -> list[str]:
    return [live.file.run for live in claims.live(path)]


def test_a_higher_priority_goes_first_and_else_who_came_first(folder: str) -> None:
    own = [claim(folder, "a"), claim(folder, "b", 10), claim(folder, "c", -5), claim(folder, "d")]
    assert runs(folder) == ["b", "a", "d", "c"]
    for own_claim in own:
        own_claim.close()
    assert runs(folder) == os.listdir(folder) == []


def test_a_claim_says_what_it_has_to_everybody(folder: str) -> None:
    before = os.umask(0o077)
    try:
        own = claim(folder)
    finally:
        os.umask(before)
    with claims.locked_folder(folder, 1.0) as fd:
        own.assign(fd, ["GPU-a", "GPU-b"], ["0", "1"])
    (live,) = claims.live(folder)
    assert (live.file.is_waiting, live.record.cards, live.uid) == (
        False,
        ["GPU-a", "GPU-b"],
        os.getuid(),
    )
    mode = os.stat(os.path.join(folder, own.name)).st_mode
    assert stat.S_IMODE(mode) == 0o644
    own.close()


def test_a_claim_ends_with_its_process_whatever_ends_that(folder: str) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, folder], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        assert runs(folder) == ["other-run"]
        holder.kill()
        wait_for(lambda: not runs(folder), "a claim that has ended")
    finally:
        holder.kill()
        holder.communicate()
    with claims.locked_folder(folder, 1.0) as fd:
        for file in claims.files(fd):
            assert claims.read(fd, file, sweep=True) is None
    assert os.listdir(folder) == []


def test_the_folder_is_locked_for_no_longer_than_a_start_is_patient(folder: str) -> None:
    with claims.locked_folder(folder, 1.0):
        began = time.monotonic()
        with pytest.raises(claims.FolderBusyError), claims.locked_folder(folder, 0.05):
            pass
        assert time.monotonic() - began < 5


def test_links_pipes_and_odd_files_of_others_are_passed_over(folder: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("{}")
    own = claim(folder)
    os.symlink(secret, os.path.join(folder, "have.1000.000000002.link.0"))
    os.mkfifo(os.path.join(folder, "have.1000.000000003.pipe.0"))
    os.mkdir(os.path.join(folder, "have.1000.000000004.folder.0"))
    for name in ("have.x", "have.1000.000000005.../../x.0", "wait.9999.1.a.0"):
        with open(os.path.join(folder, name.replace("/", "_")), "w", encoding="utf-8"):
            pass
    assert runs(folder) == ["run-1"]
    own.close()
    assert secret.read_text() == "{}"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"cards": 3, "count": "x"}', b"\xff" * 99])
def test_a_claim_with_odd_contents_is_one_that_names_no_card(folder: str, content: bytes) -> None:
    own = claim(folder, is_waiting=False)
    os.ftruncate(own.fd, 0)
    os.pwrite(own.fd, content, 0)
    (live,) = claims.live(folder)
    assert (list(live.record.cards), live.record.count) == ([], 0)
    own.close()


def test_a_folder_that_is_a_link_or_not_shared_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    link = tmp_path / "link"
    link.symlink_to(target)
    with (
        pytest.raises(OSError, match=r"Not a directory|Too many levels"),
        claims.open_folder(str(link)),
    ):
        pass
    target.chmod(0o777)  # without the sticky bit others could replace a claim
    with pytest.raises(PermissionError, match="chmod 1777"), claims.open_folder(str(target)):
        pass
    assert os.listdir(target) == []


def test_a_file_that_somebody_removes_is_noticed_and_a_new_one_is_not_taken_for_it(
    folder: str,
) -> None:
    own = claim(folder)
    path = os.path.join(folder, own.name)
    os.unlink(path)
    with open(path, "w", encoding="utf-8"):
        pass
    with claims.open_folder(folder) as fd:
        assert not own.is_there(fd)
    own.close()
    assert os.path.exists(path)


def test_named_cards_are_claimed_without_waiting_and_a_start_goes_on_where_that_fails(
    folder: str,
) -> None:
    run = RunRecord(id="run-1", gpus=["0", "3"])
    own = named.claim(run, CardRequest(folder=folder))
    assert own is not None
    assert list(claims.live(folder)[0].record.words) == ["0", "3"]
    own.close()
    every = named.claim(RunRecord(id="run-2"), CardRequest(folder=folder))  # `gpus: auto`
    assert every is not None
    machine = [MachineCard(f"rocm:{at}", str(at), "rocm") for at in range(2)]
    assert list(report.keys_of_owners(claims.live(folder), machine)) == ["rocm:0", "rocm:1"]
    every.close()
    assert named.claim(RunRecord(id="run-3", gpus=[]), CardRequest(folder=folder)) is None
    assert named.claim(run, CardRequest(folder=os.path.join(folder, "no", "such"))) is None
    with claims.locked_folder(folder, 1.0):
        assert named.claim(run, CardRequest(folder=folder)) is None


def test_only_a_whole_path_names_another_folder() -> None:
    assert folder_path({"SAFELAUNCH_CARDS": "claims"}) == folder_path({})
    assert folder_path({"SAFELAUNCH_CARDS": "/srv/cards"}) == "/srv/cards"
