"""Several commands that change a hosts file at once: none of them loses what another wrote."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from safelaunch.config.hosts_file import reader, update_file
from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

# says that it is there, waits for the word, and then adds its hosts one by one
WRITER = """
import sys
from safelaunch.config.hosts_file.update_file import change
from safelaunch.config.hosts_file.save_facts import save
path, name = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
for n in range(10):
    change(path, lambda text: save(text, path, f"{name}{n}", {"nccl": "2.27.3"}))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "hosts.yaml"


def test_what_several_write_at_once_is_all_there(path: Path) -> None:
    names = ("a", "b", "c", "d")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for name in names
    ]  # fmt: skip
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        assert [writer.wait(60) for writer in writers] == [0] * len(names)
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    machines = reader.load(str(path), str(path), lambda path, _: path).machines
    assert set(machines) == {f"{name}{n}" for name in names for n in range(10)}
    assert [each.name for each in path.parent.iterdir()] == ["hosts.yaml"]


def test_who_waits_too_long_is_told_and_writes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update_file, "LIMIT", 0.1)
    with (
        update_file.lock(str(path)),
        pytest.raises(ConfigError, match="another safelaunch has been changing it"),
    ):
        update_file.change(str(path), lambda _: "hosts: {}\n")
    assert not path.exists()


def test_an_error_in_between_lets_the_next_one_in(path: Path) -> None:
    def breaks(_: str) -> str:
        raise ConfigError("no")

    with pytest.raises(ConfigError):
        update_file.change(str(path), breaks)
    update_file.change(str(path), lambda _: "hosts: {}\n")
    assert path.read_text() == "hosts: {}\n"


def test_a_text_that_stays_is_not_written_again(path: Path) -> None:
    update_file.change(str(path), lambda _: "hosts: {}\n")
    before = path.stat().st_ino
    update_file.change(str(path), lambda text: text)
    assert path.stat().st_ino == before


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        update_file.change(str(tmp_path / "file" / "hosts.yaml"), lambda _: "hosts: {}\n")
