"""What a machine answers to the questions of checks: of itself, asked here."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from safelaunch.runtime import processes
from safelaunch.runtime.facts import answers, commands, port_holders, questions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


def ask(kind: str, *words: Any, cwd: str = "/") -> Any:
    return questions.answer(cwd, kind, list(words))


@contextlib.contextmanager
def listener(address: str = "127.0.0.1") -> Iterator[int]:
    with socket.socket() as server:
        server.bind((address, 0))
        server.listen()
        yield server.getsockname()[1]


# -- paths -----------------------------------------------------------------------------------------


def test_a_path_says_its_kind_and_what_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("four")
    reply = ask("path", "a.txt", cwd=str(tmp_path))
    assert (reply["kind"], reply["size"], reply["readable"]) == ("file", 4, True)


def test_a_folder_says_if_it_is_empty(tmp_path: Path) -> None:
    assert ask("path", str(tmp_path))["empty"] is True
    (tmp_path / "x").touch()
    assert ask("path", str(tmp_path))["empty"] is False


def test_a_dangling_link_is_nothing_and_says_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("gone")
    reply = ask("path", "link", cwd=str(tmp_path))
    assert (reply["kind"], reply["link"]) == (None, "gone")


def test_a_glob_is_counted(tmp_path: Path) -> None:
    for name in ("1.csv", "2.csv", "3.txt"):
        (tmp_path / name).touch()
    reply = ask("glob", "*.csv", cwd=str(tmp_path))
    assert reply == {"count": 2, "found": [f"{tmp_path}/1.csv", f"{tmp_path}/2.csv"]}


def test_room_is_that_of_the_nearest_folder(tmp_path: Path) -> None:
    reply = ask("room", str(tmp_path / "a" / "b"))
    assert reply["folder"] == str(tmp_path)
    assert reply["writable"]
    assert reply["free"] > 0


def test_a_file_in_the_way_of_a_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    assert ask("room", str(tmp_path / "out" / "b"))["is_file"] is True


def test_the_folder_of_runs_is_found_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAFELAUNCH_HOME", str(tmp_path))
    reply = ask("home")
    assert (reply["path"], reply["folder"]) == (str(tmp_path / "runs"), str(tmp_path))


def test_sizes_are_added_up_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a").write_bytes(b"1234")
    (tmp_path / "sub" / "b").write_bytes(b"56")
    (tmp_path / "sub" / "round").symlink_to(tmp_path)
    assert ask("size", str(tmp_path)) == {"bytes": 6, "files": 2, "whole": True}
    assert ask("size", str(tmp_path / "none"))["bytes"] == 0


# -- ports and names -------------------------------------------------------------------------------


def test_a_port_that_somebody_listens_on_says_who() -> None:
    with listener() as port:
        reply = ask("port", port)
    assert (reply["free"], reply["listens"]) == (False, True)
    (holder,) = reply["holders"]
    assert holder["pid"] == os.getpid()
    assert holder["user"] == pwd.getpwuid(os.getuid()).pw_name
    assert "py" in holder["command"]
    assert ask("port", reply["instead"])["free"]


def test_a_port_that_nobody_has_is_free() -> None:
    with listener() as port:
        pass
    assert ask("port", port) == {"free": True}


def test_a_port_that_another_start_tries_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        tried = server.getsockname()[1]
        monkeypatch.setattr(time, "sleep", lambda _: server.close())
        assert ask("port", tried) == {"free": True}


def test_a_port_held_for_ipv6_alone_is_seen() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with socket.socket(socket.AF_INET6) as server:
        try:
            server.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 here")
        server.listen()
        assert port_holders.holders_of(server.getsockname()[1])["listens"] is True


def test_a_table_of_sockets_that_cannot_be_read_is_no_free_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(port_holders, "_TABLES", ("/none",))
    with listener() as port:
        reply = ask("port", port)
    assert (reply["free"], reply["listens"], reply["holders"]) == (False, None, [])


def test_a_server_is_reached_or_the_reason_is_said() -> None:
    with listener() as port:
        assert ask("reach", "127.0.0.1", port) == {"reached": True}
    reply = ask("reach", "127.0.0.1", port)
    assert (reply["reached"], reply["why"]) == (False, "connection refused")


@pytest.mark.parametrize("host", ["no such name", "a..b", "x" * 300])
def test_a_bad_name_is_an_answer(host: str) -> None:
    assert ask("reach", host, 80)["reached"] is False
    assert ask("name", host)["addresses"] == []


def test_the_machine_says_its_own_name() -> None:
    reply = ask("hostname")
    assert reply["name"] == os.uname().nodename
    assert isinstance(reply["addresses"], list)


# -- models and checkpoints ------------------------------------------------------------------------


def test_pointers_of_git_lfs_are_found(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model-1.safetensors").write_text(POINTER)
    (tmp_path / "model-2.safetensors").write_bytes(b"\0" * 9)
    reply = ask("model", str(tmp_path))
    assert reply["pointers"] == ["model-1.safetensors"]
    assert (reply["weights"], reply["config"], reply["tokenizer"]) == (1, True, False)


def test_parts_that_an_index_names_are_missed(tmp_path: Path) -> None:
    index = {"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "m-1.safetensors").touch()
    (tmp_path / "tokenizer.json").touch()
    reply = ask("model", str(tmp_path))
    assert (reply["missing"], reply["tokenizer"]) == (["m-2.safetensors"], True)


def test_an_adapter_is_known_as_one(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").touch()
    assert ask("model", str(tmp_path))["other"] == "adapter_config.json"


def test_a_checkpoint_of_transformers_is_known(tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").touch()
    (tmp_path / "model.safetensors").touch()
    reply = ask("checkpoint", str(tmp_path))
    assert (reply["kind"], reply["marks"], reply["states"]) == ("folder", ["trainer_state.json"], 1)


@pytest.mark.parametrize(("name", "error", "folder"), [
    ("latest", "global_step500", "global_step500"),
    ("latest_checkpointed_iteration.txt", "500", "iter_0000500"),
])  # fmt: skip
def test_what_latest_names_is_looked_for(
    tmp_path: Path, name: str, error: str, folder: str
) -> None:
    (tmp_path / name).write_text(error + "\n")
    assert ask("checkpoint", str(tmp_path))["latest_found"] is False
    (tmp_path / folder).mkdir()
    reply = ask("checkpoint", str(tmp_path))
    assert (reply["latest"], reply["latest_found"], reply["steps"]) == (error, True, [folder])


def test_no_checkpoint_is_an_answer(tmp_path: Path) -> None:
    assert ask("checkpoint", str(tmp_path / "none")) == {"kind": None}
    (tmp_path / "last.pt").touch()
    assert ask("checkpoint", str(tmp_path / "last.pt")) == {"kind": "file", "flaw": "is empty"}


@pytest.mark.parametrize(("kind", "name"), [
    ("model", "model.safetensors.index.json"),
    ("model", "model-1.safetensors"),
    ("checkpoint", "latest"),
    ("path", "x"),
    ("size", "x"),
])  # fmt: skip
def test_a_pipe_where_a_file_is_expected_is_not_waited_for(
    tmp_path: Path, kind: str, name: str
) -> None:
    os.mkfifo(tmp_path / name)
    assert isinstance(ask(kind, str(tmp_path)), dict)
    assert not answers.is_pointer(str(tmp_path / name))


# -- other runs ------------------------------------------------------------------------------------


def test_a_live_run_tells_its_words_and_cards_and_no_other_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAFELAUNCH_HOME", str(tmp_path))
    node = tmp_path / "runs" / "job-1" / "node-0"
    node.mkdir(parents=True)
    status = {
        "state": "running",
        "name": "job",
        "supervisor": processes.identity(os.getpid()).to_json(),
    }
    (node / "status.json").write_text(json.dumps(status))
    env = {"CUDA_VISIBLE_DEVICES": {"value": "0,1"}, "WANDB_API_KEY": {"value": "hidden"}}
    argv = ["python", "t.py", "--out=/w.job-1/out"]  # in its own copy of the project /w
    plan = {"nodes": [{"argv": argv, "cwd": "/w.job-1/sub", "node_rank": 0, "env": env}]}
    (node / "plan.json").write_text(json.dumps(plan))
    (node / "run.json").write_text(json.dumps({"place": "/w", "tree": "/w.job-1", "checkout": "c"}))
    (run,) = ask("runs")["live"]
    (reply,) = run["plan"]["nodes"]
    assert (run["id"], run["place"], run["checkout"]) == ("job-1", "/w", "c")
    assert (reply["argv"], reply["cwd"]) == (["python", "t.py", "--out=/w/out"], "/w/sub")
    assert reply["env"] == {"CUDA_VISIBLE_DEVICES": {"value": "0,1"}}


# -- the hub's cache -------------------------------------------------------------------------------


@pytest.mark.parametrize(("setting", "below"), [
    ("HF_HUB_CACHE={}/c", "c"),
    ("HF_HOME={}/h", "h/hub"),
    ("XDG_CACHE_HOME={}/x", "x/huggingface/hub"),
])  # fmt: skip
def test_the_cache_is_where_the_job_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, below: str
) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    words = ("hub", "models", "org/name", setting.format(tmp_path))
    assert ask(*words)["cached"] is False
    snapshot = tmp_path / below / "models--org--name" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    assert ask(*words)["cached"] is False  # an empty snapshot is a download that was cut
    (snapshot / "config.json").touch()
    assert ask(*words) == {"cached": True, "folder": str(snapshot.parents[1])}


# -- bad questions ---------------------------------------------------------------------------------


def test_a_question_that_nobody_knows_is_skipped() -> None:
    with pytest.raises(commands.Skip):
        ask("weather")


@pytest.mark.parametrize(("kind", "words"), [
    ("room", ("/proc/self/fd/99/x",)),
    ("glob", ("[",)),
    ("path", ("/dev/null/x",)),
    ("checkpoint", ("/dev/null",)),
    ("size", ("/dev/null/x",)),
    ("hub", ("models", "../..", "broken")),
])  # fmt: skip
def test_a_strange_path_makes_no_traceback(kind: str, words: tuple[str, ...]) -> None:
    with contextlib.suppress(commands.Skip):
        assert isinstance(ask(kind, *words), dict)
