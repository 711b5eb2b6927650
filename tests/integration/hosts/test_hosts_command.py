from __future__ import annotations

import json
import os
import pty
import shutil
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from support import REPOSITORY
from support.cli_process import CLI
from support.ssh import sshd
from support.ssh.sshd import PASSWORD, ROOT, Sshd, agent, keygen
from support.workspace import DEADLINE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workspace import Place

pytestmark = pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
root_only = pytest.mark.skipif(
    not ROOT, reason="only root can give a server its own passwords and users"
)
PASSWORD_LOGIN = {"PasswordAuthentication": "yes"}
CONFIG = """
Host bastion
  HostName 10.1.1.1
  User jump
Host lab-b
  HostName 192.168.7.7
  ProxyJump bastion
"""
HOSTS = """# mine
hosts:
  gpu1:                     # the new one
    address: [10.0.0.5, "[fe80::1]:2201"]
    user: me
    profile: rtx5090
    workdir: ~/llm
  gpu2: {ssh: lab-b, user: you}
  localhost:
groups:
  lab: [gpu1, gpu2]
"""


class Typed(NamedTuple):
    code: int
    screen: str


class Desk:
    """A user at a terminal: home folders of their own, and the real command line."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.user = place.user
        self.file = place.home / "hosts.yaml"
        place.env.pop("SSH_AUTH_SOCK", None)
        place.env |= {"NO_COLOR": "1", "COLUMNS": "80"}

    def hosts(self, text: str) -> None:
        self.place.home.mkdir(exist_ok=True)
        self.file.write_text(text)

    def config(self, text: str) -> None:
        self.place.ssh_config(text)

    def knows(self, server: Sshd, *keys: Path) -> None:
        """Trust a server, and have its own key or others as this user's."""
        folder = self.user / ".ssh"
        folder.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(server.known_hosts, folder / "known_hosts")
        for key, name in zip(keys or (server.key,), ("id_ed25519", "id_rsa"), strict=False):
            shutil.copy(key, folder / name)

    def cli(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command without a terminal."""
        return self.place.cli("hosts", *words, code=code, start_new_session=True)

    def json(self, *words: str, code: int = 0) -> dict[str, Any]:
        data = json.loads(self.cli(*words, "--json", code=code).stdout)
        assert data["version"] == 1
        assert isinstance(data, dict)
        return data

    def type(self, *words: str, answers: tuple[tuple[str, str], ...] = ()) -> Typed:
        """Run a command at a terminal, and answer each question once it stands there."""
        child, screen = pty.fork()
        if not child:
            os.chdir(self.place.project)
            os.execve(sys.executable, [*CLI, "hosts", *words], self.place.env)  # noqa: S606
        output, at, left = b"", 0, list(answers)
        deadline = time.monotonic() + 60
        try:
            while time.monotonic() < deadline:
                try:
                    part = os.read(screen, 4096)
                except OSError:
                    break
                output += part
                if left and left[0][0].encode() in output[at:]:
                    at = len(output)
                    os.write(screen, left.pop(0)[1].encode() + b"\n")
        finally:
            os.close(screen)
            _, status = os.waitpid(child, 0)
        text = output.decode().replace("\r\n", "\n")
        assert "Traceback" not in text, text
        assert not left, (left, text)
        return Typed(os.waitstatus_to_exitcode(status), text)

    def files(self) -> dict[str, bytes]:
        """Return all that lies in the user's folders."""
        folders = (self.user, self.place.home)
        paths = [path for folder in folders if folder.exists() for path in folder.rglob("*")]
        return {path.name: path.read_bytes() for path in paths if path.is_file()}


@pytest.fixture
def desk(place: Place) -> Desk:
    return Desk(place)


@pytest.fixture(scope="module")
def server() -> Iterator[Sshd]:
    with Sshd(PASSWORD_LOGIN if ROOT else None) as server:
        yield server


@pytest.fixture
def bare(server: Sshd) -> Iterator[Sshd]:
    """Yield the server, whose users have no more than its key lets in afterwards as well."""
    authorized = {
        user: (server.home(user) / ".ssh" / "authorized_keys").read_text() for user in server.users
    }
    yield server
    for user, text in authorized.items():
        (server.home(user) / ".ssh" / "authorized_keys").write_text(text)


def entry(server: Sshd, name: str = "box", **more: str) -> str:
    """Return a host of a hosts file that reaches a server."""
    keys = {"address": server.address, "port": str(server.port), "user": server.user, **more}
    return f"  {name}:\n" + "".join(f"    {key}: {value}\n" for key, value in keys.items())


def checks(host: dict[str, Any]) -> dict[str, str]:
    return {check["id"]: check["status"] for check in host["checks"]}


def evidence(host: dict[str, Any], name: str) -> str:
    return next(str(check["evidence"]) for check in host["checks"] if check["id"] == name)


# -- list ------------------------------------------------------------------------------------------


def test_hosts_are_listed_with_the_way_to_each(desk: Desk) -> None:
    desk.hosts(HOSTS.replace('[10.0.0.5, "[fe80::1]:2201"]', "10.0.0.5:22"))
    desk.config(CONFIG)
    shown = desk.cli()
    assert [line.split("  ")[0] for line in shown.stdout.splitlines()] == [
        *("HOST", "gpu1", "gpu2", "localhost", "group lab: gpu1, gpu2")
    ]
    assert "  me@10.0.0.5  " in shown.stdout
    assert "  you@192.168.7.7 via jump@10.1.1.1 (ssh lab-b)  " in shown.stdout
    assert "  rtx5090  ~/llm\n" in shown.stdout
    assert "  this machine  " in shown.stdout
    assert f"from {desk.file}" in shown.stderr
    assert "also usable, from ~/.ssh/config: bastion\n" in shown.stderr
    assert desk.cli("list").stdout == shown.stdout


def test_columns_wider_than_the_terminal_become_lines(desk: Desk) -> None:
    desk.hosts(HOSTS.replace("~/llm", "/data/shared/people/me/projects/llm"))
    desk.config(CONFIG + "".join(f"Host machine{n}\n" for n in range(30)))
    shown = desk.cli()
    assert "gpu1\n  me@10.0.0.5, or me@[fe80::1]:2201\n  profile rtx5090" in shown.stdout
    lines = (shown.stdout + shown.stderr).splitlines()
    assert [line for line in lines if len(line) > 80 and str(desk.file) not in line] == []


def test_the_list_as_json_has_every_way_and_group(desk: Desk) -> None:
    desk.hosts(HOSTS)
    desk.config(CONFIG)
    shown = desk.json()
    assert shown["file"] == str(desk.file)
    assert shown["groups"] == {"lab": ["gpu1", "gpu2"]}
    assert shown["ssh_config"] == ["bastion"]
    first, two, local = shown["hosts"]
    assert [(way["user"], way["address"], way["port"]) for way in first["reached"]] == [
        ("me", "10.0.0.5", 22),
        ("me", "fe80::1", 2201),
    ]
    assert (first["profile"], first["workdir"], first["groups"]) == ("rtx5090", "~/llm", ["lab"])
    assert two["reached"][0]["jumps"] == ["jump@10.1.1.1"]
    assert local["reached"] == []


def test_without_a_hosts_file_the_list_shows_how_to_add_one(desk: Desk) -> None:
    desk.config(CONFIG)
    shown = desk.cli()
    assert shown.stdout == ""
    assert "safelaunch hosts add NAME USER@ADDRESS" in shown.stderr
    assert "bastion, lab-b" in shown.stderr
    assert desk.json()["file"] is None


def test_a_mistake_in_ssh_config_is_shown_beside_the_list(desk: Desk) -> None:
    desk.hosts(HOSTS)
    desk.config("Host lab-b\n  Port many\n")
    shown = desk.cli()
    assert "gpu2: ~/.ssh/config:2: " in shown.stderr
    assert "me@10.0.0.5" in shown.stdout
    assert "~/.ssh/config:2" in desk.json()["hosts"][1]["error"]


def test_the_list_loads_nothing_that_connects(desk: Desk) -> None:
    desk.hosts(HOSTS)
    program = (
        "import sys\nsys.argv = ['safelaunch', 'hosts']\nimport safelaunch.cli.main\n"
        "try:\n    safelaunch.cli.main.main()\nexcept SystemExit:\n    pass\n"
        "print({'paramiko', 'cryptography'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=desk.place.env,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "set()"


def test_a_host_in_place_of_a_command_gets_a_hint(desk: Desk) -> None:
    assert "safelaunch hosts test gpu1" in desk.cli("gpu1", code=2).stderr
    assert "did you mean `test`?" in desk.cli("tets", code=2).stderr
    assert "must follow the command" in desk.cli("--json", "list", code=2).stderr


# -- test ------------------------------------------------------------------------------------------


def test_a_usable_host_is_shown_with_its_checks(desk: Desk, server: Sshd) -> None:
    desk.knows(server)
    desk.hosts("hosts:\n" + entry(server, python=sys.executable, workdir="~/llm", profile="cpu"))
    (host,) = desk.json("test")["hosts"]
    assert host["usable"] is True
    assert host["reached"] is True
    assert host["address"] == f"{server.user}@127.0.0.1:{server.port}"
    assert 0 < host["latency_ms"] < DEADLINE * 1000
    assert abs(host["clock_offset_s"]) < DEADLINE  # it grows with the time that an answer takes
    assert host["python"] == {
        "path": sys.executable,
        "version": ".".join(map(str, sys.version_info[:3])),
    }
    assert {*checks(host)} == {
        *("reached", "host key", "login", "shell", "python", "bash"),
        *("tmux", "workdir", "runs", "clock", "gpus"),
    }
    assert "~/.ssh/known_hosts:1" in evidence(host, "host key")
    assert evidence(host, "login") == "with ~/.ssh/id_ed25519 (ED25519)"
    assert "is made at the first sync" in evidence(host, "workdir")
    shown = desk.cli("test")
    assert shown.stdout.startswith("box: can be used")
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert not (server.home() / "llm").exists()


def test_errors_of_a_host_entry_are_shown_with_their_place(desk: Desk, server: Sshd) -> None:
    desk.knows(server)
    wrong = entry(server, python="/nowhere/python", workdir="/proc/llm", profile="nonesuch")
    desk.hosts("hosts:\n" + wrong)
    shown = desk.cli("test", code=3)
    assert shown.stdout.startswith("box: is reachable, but jobs cannot run there yet\n")
    text = " ".join(shown.stdout.split())
    assert "python /nowhere/python does not run: No such file or directory" in text
    assert f"correct it in {desk.file}:6:13" in text
    assert "workdir /proc/llm (/proc) cannot be written" in text
    assert "unknown profile `nonesuch`" in text
    assert desk.json("test", code=3)["hosts"][0]["usable"] is False


def test_an_unreachable_host_beside_others_is_exit_4(desk: Desk, server: Sshd) -> None:
    desk.knows(server)
    unreachable = "  gone: {address: 127.0.0.1, port: 1}\n"
    desk.hosts("hosts:\n" + unreachable + entry(server) + "groups: {all: [box, gone]}\n")
    shown = desk.cli("test", "gone", "all", code=4)
    assert "gone: cannot be reached" in shown.stdout
    assert "box: can be" in shown.stdout
    assert "127.0.0.1 port 1 refuses connections" in shown.stdout
    assert "-> is sshd running" in shown.stdout
    assert shown.stderr == "1 of 2 hosts can be used\n"
    assert [host["name"] for host in desk.json("test", code=4)["hosts"]] == ["gone", "box"]


def test_hosts_without_an_entry_are_tested_by_ssh_config_or_address(
    desk: Desk, server: Sshd
) -> None:
    desk.knows(server)
    desk.config(server.ssh_config("lab"))
    assert "lab: can be used" in desk.cli("test", "lab").stdout
    assert "can be used" in desk.cli("test", f"{server.user}@127.0.0.1:{server.port}").stdout


def test_an_unknown_name_gets_the_nearest_one(desk: Desk, server: Sshd) -> None:
    desk.hosts("hosts:\n" + entry(server, "gpu1.invalid"))
    assert "did you mean `gpu1.invalid`?" in desk.cli("test", "gpu2.invalid", code=4).stdout
    assert "this machine" in desk.cli("test", "localhost", code=2).stderr


def test_without_hosts_there_is_nothing_to_test(desk: Desk) -> None:
    assert "safelaunch hosts add" in desk.cli("test", code=2).stderr


@root_only
def test_a_folder_of_runs_that_cannot_be_written_is_an_error(desk: Desk, server: Sshd) -> None:
    desk.knows(server)
    desk.hosts("hosts:\n" + entry(server, user="alice"))
    desk.cli("test")
    taken = server.home("alice") / ".safelaunch" / "runs"
    taken.mkdir()
    shown = " ".join(desk.cli("test", code=3).stdout.split())
    taken.rmdir()
    assert f"fail runs {taken} cannot be written: Permission denied" in shown
    assert "set SAFELAUNCH_HOME to another folder there" in shown


def test_an_unknown_host_key_without_a_terminal_is_an_error(desk: Desk, server: Sshd) -> None:
    desk.hosts("hosts:\n" + entry(server))
    shown = desk.cli("test", code=4)
    assert shown.stdout.startswith("box: is not trusted\n  fail  host key  its host key is not")
    assert "safelaunch hosts test box" in shown.stdout


def test_a_shell_that_prints_is_a_warning(desk: Desk, tmp_path: Path) -> None:
    with forced(tmp_path, "echo welcome to $HOSTNAME;") as server:
        desk.knows(server)
        desk.hosts("hosts:\n" + entry(server))
        (host,) = desk.json("test")["hosts"]
        assert checks(host)["shell"] == "warn"
        assert "before each command: 'welcome to" in evidence(host, "shell")
        assert host["usable"] is True
        assert "box: can be used, " in desk.cli("test").stdout


def forced(tmp_path: Path, before: str) -> Sshd:
    """Return a server whose commands run behind some words of shell."""
    script = tmp_path / "forced"
    script.write_text(f'#!/bin/bash\n{before} eval "$SSH_ORIGINAL_COMMAND"\n')
    script.chmod(0o755)
    return Sshd({"ForceCommand": str(script)})


CARDS = """#!/bin/sh
echo 'GPU 0: NVIDIA GeForce RTX 5090 (UUID: GPU-1)'
echo 'GPU 1: NVIDIA GeForce RTX 5090 (UUID: GPU-2)'
"""


def test_gpus_are_shown_and_compared_with_the_profile(desk: Desk, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(CARDS)
    (tools / "nvidia-smi").chmod(0o755)
    with forced(tmp_path, f"PATH={tools}:$PATH") as server:
        desk.knows(server)
        own = entry(server, "own", profile="rtx5090")
        desk.hosts("hosts:\n" + own + entry(server, "other", profile="h100"))
        mine, other = desk.json("test")["hosts"]
        assert mine["gpus"] == ["NVIDIA GeForce RTX 5090"] * 2
        assert evidence(mine, "gpus") == "2 x NVIDIA GeForce RTX 5090"
        assert (checks(mine)["gpus"], checks(other)["gpus"]) == ("ok", "warn")
        (tools / "nvidia-smi").write_text("#!/bin/sh\necho the driver is gone >&2; exit 9\n")
        mine, _ = desk.json("test", code=3)["hosts"]
        assert evidence(mine, "gpus") == "nvidia-smi says: the driver is gone"


def test_missing_tools_are_shown_with_their_purpose(desk: Desk, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "python3").symlink_to(os.path.realpath(sys.executable))
    with forced(tmp_path, f"PATH={tools}") as server:
        desk.knows(server)
        desk.hosts("hosts:\n" + entry(server))
        shown = desk.cli("test", code=3).stdout
        assert "fail  bash      not found" in shown
        assert (
            "warn  tmux      `tmux` is not installed: everything but `safelaunch attach`" in shown
        )


def test_without_python_no_other_check_is_shown(desk: Desk, tmp_path: Path) -> None:
    with forced(tmp_path, "exec /bin/sh -c 'printf \"\\0safelaunch nopython\\n\"';") as server:
        desk.knows(server)
        desk.hosts("hosts:\n" + entry(server))
        shown = desk.cli("test", code=4).stdout
        assert shown.startswith("box: is reachable, but cannot be used\n")
        assert "fail  agent     no python3 there" in shown


def test_a_host_that_hangs_does_not_delay_the_others(
    desk: Desk, server: Sshd, tmp_path: Path
) -> None:
    with forced(tmp_path, "exec tail -f /dev/null;") as stuck:
        desk.knows(server)
        known_hosts = desk.user / ".ssh" / "known_hosts"
        known_hosts.write_text(known_hosts.read_text() + stuck.known_hosts.read_text())
        desk.hosts(
            "hosts:\n" + entry(stuck, "stuck", identity=str(stuck.key)) + entry(server, "box")
        )
        shown = desk.cli("test", "--timeout", "6", code=4)
        late = shown.stdout.index("fail  shell     the login shell took longer than 6 s")
        assert shown.stdout.index("box: can be used") < late


@root_only
def test_a_password_prompt_is_a_warning_with_the_remedy(desk: Desk, server: Sshd) -> None:
    desk.hosts("hosts:\n" + entry(server, "one", user="alice") + entry(server, "two", user="alice"))
    desk.knows(server, server.host_keys[0])
    answers = (("password: ", PASSWORD), ("password: ", PASSWORD))
    done = desk.type("test", answers=answers)
    assert done.code == 0, done.screen
    assert "one: can be used, " in done.screen
    assert "warn  login     with a password, asked each time" in done.screen
    assert "safelaunch hosts add two" in done.screen
    assert PASSWORD not in done.screen


# -- add -------------------------------------------------------------------------------------------


@root_only
def test_a_host_is_added_with_a_single_password_prompt(desk: Desk, bare: Sshd) -> None:
    where = f"alice@127.0.0.1:{bare.port}"
    words = ("add", "gpu1", where, "--profile", "cpu", "--workdir", f"{desk.user}/llm")
    done = desk.type(*words, answers=(("(yes/no", "yes"), ("password: ", PASSWORD)))
    assert done.code == 0, done.screen
    steps = (
        f"gpu1: connecting to {where}\n",
        "The authenticity of host 'gpu1'",
        "alice@127.0.0.1's password: ",
        "gpu1: logged in with a password\n",
        "gpu1: created the key ~/.ssh/id_ed25519, without a passphrase\n",
        "gpu1: the key ~/.ssh/id_ed25519 is installed for alice\n",
        "gpu1: login with ~/.ssh/id_ed25519 (ED25519) alone works\n",
        f"gpu1: written to {desk.file}\n",
        "next: safelaunch hosts test gpu1\n",
    )
    places = [done.screen.index(step) for step in steps]
    assert places == sorted(places)
    assert done.screen.count("password: ") == 1
    assert desk.file.read_text() == (
        f"hosts:\n  gpu1:\n    address: 127.0.0.1\n    user: alice\n    port: {bare.port}\n"
        "    profile: cpu\n    workdir: ~/llm\n"
    )
    assert stat.S_IMODE(desk.file.stat().st_mode) == 0o600
    assert stat.S_IMODE((desk.user / ".ssh" / "id_ed25519").stat().st_mode) == 0o600
    keys = (bare.home("alice") / ".ssh" / "authorized_keys").read_text()
    before = desk.files()
    again = desk.cli(*words)
    assert "login with ~/.ssh/id_ed25519 (ED25519) works, nothing to install" in again.stderr
    assert f"is already in {desk.file}" in again.stderr
    assert desk.files() == before
    assert (bare.home("alice") / ".ssh" / "authorized_keys").read_text() == keys
    assert "gpu1: can be used" in desk.cli("test").stdout
    assert PASSWORD not in done.screen
    assert [name for name, data in before.items() if PASSWORD.encode() in data] == []


@root_only
def test_a_wrong_password_leaves_nothing_behind(desk: Desk, bare: Sshd) -> None:
    desk.knows(bare, bare.host_keys[0])
    before = desk.files()
    wrong = (("password: ", "wrong"),) * 3
    done = desk.type("add", "gpu1", f"alice@127.0.0.1:{bare.port}", answers=wrong)
    assert done.code == 4
    assert "gpu1: login failed for alice@127.0.0.1" in done.screen
    assert desk.files() == before


@root_only
def test_without_a_terminal_a_password_is_refused_with_what_to_do(desk: Desk, bare: Sshd) -> None:
    desk.knows(bare, bare.host_keys[0])
    done = desk.cli("add", "gpu1", f"alice@127.0.0.1:{bare.port}", code=4)
    assert "run this in one" in done.stderr
    text = " ".join(desk.cli("test", f"alice@127.0.0.1:{bare.port}", code=4).stdout.split())
    assert f"safelaunch hosts add NAME alice@127.0.0.1:{bare.port}` there once" in text
    assert f"ssh-copy-id -p {bare.port} alice@127.0.0.1" in done.stderr
    (desk.user / ".ssh" / "known_hosts").unlink()
    done = desk.cli("add", "gpu1", f"alice@127.0.0.1:{bare.port}", code=4)
    assert "run this in a terminal, compare the fingerprint" in done.stderr
    assert not desk.file.exists()


def test_with_a_key_that_works_there_is_no_prompt(desk: Desk, server: Sshd) -> None:
    desk.knows(server)
    done = desk.cli("add", "box", "127.0.0.1", "--port", str(server.port))
    assert "nothing to install" in done.stderr
    assert (
        desk.file.read_text()
        == f"hosts:\n  box:\n    address: 127.0.0.1\n    port: {server.port}\n"
    )


def test_a_named_key_is_created_and_installed_with_another_key(desk: Desk, bare: Sshd) -> None:
    desk.knows(bare)
    where = f"{bare.user}@127.0.0.1:{bare.port}"
    done = desk.cli("add", "box", where, "--identity", "~/.ssh/lab")
    assert "logged in with ~/.ssh/id_ed25519" in done.stderr
    assert "created the key ~/.ssh/lab" in done.stderr
    assert "identity: ~/.ssh/lab\n" in desk.file.read_text()
    (desk.user / ".ssh" / "id_ed25519").unlink()
    done = desk.cli("add", "box", where, "--identity", "~/.ssh/lab")
    assert "login with ~/.ssh/lab (ED25519) works, nothing to install" in done.stderr


@root_only
def test_a_key_of_the_agent_is_installed_without_a_key_file(
    desk: Desk, bare: Sshd, tmp_path: Path
) -> None:
    key = keygen(tmp_path / "key", "ed25519", "-C", "me@laptop")
    with agent(tmp_path, key) as socket:
        desk.place.env["SSH_AUTH_SOCK"] = socket
        done = desk.type(
            *("add", "gpu1", f"alice@127.0.0.1:{bare.port}"),
            answers=(("(yes/no", "yes"), ("password: ", PASSWORD)),
        )
    assert done.code == 0, done.screen
    assert "gpu1: the key agent: me@laptop is installed for alice" in done.screen
    assert "id_ed25519" not in desk.files()


def test_a_full_agent_does_not_prevent_the_named_key(
    desk: Desk, bare: Sshd, tmp_path: Path
) -> None:
    desk.knows(bare)
    folder = desk.user / ".ssh"
    (folder / "id_ed25519").rename(folder / "lab")
    where = f"{bare.user}@127.0.0.1:{bare.port}"
    with agent(tmp_path, *(keygen(tmp_path / f"key{n}") for n in range(8))) as socket:
        desk.place.env["SSH_AUTH_SOCK"] = socket
        refused = desk.cli("test", where, code=4).stdout
        assert "name the right one with `identity` in the hosts file" in " ".join(refused.split())
        done = desk.cli("add", "box", where, "--identity", "~/.ssh/lab")
        assert "retrying without them" in done.stderr
        assert "login with ~/.ssh/lab (ED25519) works, nothing to install" in done.stderr
        assert "with ~/.ssh/lab (ED25519)" in desk.cli("test").stdout


@root_only
def test_a_full_agent_does_not_prevent_the_password(desk: Desk, bare: Sshd, tmp_path: Path) -> None:
    desk.knows(bare, bare.host_keys[0])
    words = ("add", "gpu1", f"alice@127.0.0.1:{bare.port}", "--identity", "~/.ssh/lab")
    with agent(tmp_path, *(keygen(tmp_path / f"key{n}") for n in range(8))) as socket:
        desk.place.env["SSH_AUTH_SOCK"] = socket
        done = desk.type(*words, answers=(("password: ", PASSWORD),))
        assert done.code == 0, done.screen
        assert "gpu1: login with ~/.ssh/lab (ED25519) alone works" in done.screen


@root_only
def test_a_key_with_a_passphrase_is_installed_from_its_public_half(
    desk: Desk, bare: Sshd, tmp_path: Path
) -> None:
    key = keygen(tmp_path / "key", passphrase="open sesame")  # noqa: S106 - of this test
    desk.knows(bare, key)
    done = desk.type(
        *("add", "gpu1", f"alice@127.0.0.1:{bare.port}"),
        answers=(("password: ", PASSWORD), ("passphrase of ~/.ssh/id_ed25519: ", "open sesame")),
    )
    assert done.code == 0, done.screen
    assert "created the key" not in done.screen


def test_the_key_of_an_entry_is_installed_with_another_key(desk: Desk, bare: Sshd) -> None:
    desk.knows(bare)
    desk.hosts("hosts:\n" + entry(bare, identity="~/.ssh/lab"))
    done = desk.cli("add", "box")
    assert "created the key ~/.ssh/lab" in done.stderr
    assert f"is already in {desk.file}" in done.stderr
    (desk.user / ".ssh" / "id_ed25519").unlink()
    assert "with ~/.ssh/lab (ED25519)" in desk.cli("test").stdout


@root_only
def test_a_server_that_wants_more_than_a_key_is_added_and_called_so(desk: Desk) -> None:
    with Sshd({**PASSWORD_LOGIN, "AuthenticationMethods": "publickey,password"}) as server:
        desk.knows(server)
        words = ("add", "box", f"root@127.0.0.1:{server.port}", "--transport", "paramiko")
        refused = desk.cli(*words, code=4).stderr
        assert "and wants password besides" in refused
        assert "accepts keys only" not in refused
        assert not desk.file.exists()
        screen = " ".join(desk.type(*words, answers=(("password: ", PASSWORD),)).screen.split())
        assert "~/.ssh/id_ed25519 (ED25519) and a password works, nothing to install" in screen
        assert "each login asks for more than the key" in screen
        assert "ControlPersist" in screen
        assert "transport: paramiko" in desk.file.read_text()


def test_a_server_that_accepts_other_keys_only_gets_another_hint_than_hosts_add(
    desk: Desk, tmp_path: Path
) -> None:
    with Sshd() as server:
        desk.knows(server, keygen(tmp_path / "key"))
        where = f"{server.user}@127.0.0.1:{server.port}"
        done = desk.type("add", "box", where)
        assert done.code == 4
        assert "accepts keys only" in done.screen
        assert "~/.ssh/id_ed25519.pub" in done.screen
        assert "safelaunch hosts add" not in done.screen
        assert "accepts keys only" in desk.cli("add", "box", where, code=4).stderr


def test_a_home_that_cannot_store_a_key_leaves_no_entry_and_no_key(
    desk: Desk, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".ssh").write_text("in the way")
    with forced(tmp_path, f"export HOME={tmp_path}/home;") as server:
        desk.knows(server)
        where = f"{server.user}@127.0.0.1:{server.port}"
        done = desk.cli("add", "box", where, "--identity", "~/.ssh/new", code=4)
    assert "error: box: " in done.stderr
    assert not desk.file.exists()
    assert not {"new", "new.pub"} & {*desk.files()}


def test_a_name_of_ssh_config_is_added_as_such(desk: Desk, server: Sshd) -> None:
    desk.knows(server)
    desk.config(server.ssh_config("lab"))
    desk.cli("add", "lab")
    desk.cli("add", "box", "lab", "--python", sys.executable)
    assert desk.file.read_text() == (
        f"hosts:\n  lab:\n  box:\n    ssh: lab\n    python: {sys.executable}\n"
    )
    assert "is already in" in desk.cli("add", "box", "lab").stderr
    assert "is already in" in desk.cli("add", "lab", "lab").stderr


def test_an_entry_that_differs_is_changed_only_with_force(desk: Desk, server: Sshd) -> None:
    desk.knows(server)
    text = (
        f"# mine\nhosts:\n  box:  # the new one\n    address: 127.0.0.1:{server.port}  # in rack\n"
        f"    user: {server.user}\n    profile: h100   # for now\n    env: {{A: b}}\n"
        "groups: {all: [box]}  # end\n"
    )
    desk.hosts(text)
    desk.file.chmod(0o640)
    same = ("add", "box", f"{server.user}@127.0.0.1:{server.port}")
    assert "is already in" in desk.cli(*same, "--profile", "h100").stderr
    refused = desk.cli(*same, "--profile", "cpu", "--workdir", "/data", code=2)
    assert f"{desk.file}:3:3: `box` is there already" in refused.stderr
    assert "`profile` is h100, you ask for cpu; `workdir` is not set, you ask for /data" in (
        refused.stderr
    )
    assert "--force" in refused.stderr
    assert desk.file.read_text() == text
    desk.cli(*same, "--profile", "cpu", "--workdir", "/data", "--force")
    changed = text.replace("profile: h100   #", "profile: cpu   #")
    changed = changed.replace("# the new one\n", "# the new one\n    workdir: /data\n")
    assert desk.file.read_text() == changed
    assert stat.S_IMODE(desk.file.stat().st_mode) == 0o640


def test_an_unknown_host_name_needs_an_address(desk: Desk) -> None:
    done = desk.cli("add", "gpu9.invalid", code=4)
    assert "safelaunch hosts add gpu9.invalid USER@ADDRESS" in done.stderr


def test_a_linked_hosts_file_stays_a_link(desk: Desk, server: Sshd, tmp_path: Path) -> None:
    desk.knows(server)
    real = tmp_path / "dotfiles.yaml"
    real.write_text("# mine\n")
    desk.place.home.mkdir()
    desk.file.symlink_to(real)
    desk.cli("add", "box", f"{server.user}@127.0.0.1:{server.port}")
    assert desk.file.is_symlink()
    assert real.read_text().startswith("# mine\nhosts:\n  box:\n")


def test_another_hosts_file_can_be_named(desk: Desk, server: Sshd) -> None:
    desk.knows(server)
    where = f"{server.user}@127.0.0.1:{server.port}"
    desk.cli("add", "box", where, "--hosts", "lab.yaml")
    assert not desk.file.exists()
    assert "box: can be used" in desk.cli("test", "--hosts", "lab.yaml").stdout
    assert where in desk.cli("--hosts", "lab.yaml").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("localhost", "10.0.0.5"), "`localhost` is this machine"),
        (("lab", "10.0.0.5"), "`lab` is a group already"),
        (("a b", "10.0.0.5"), "is no host name"),
        (("new", "me:secret@10.0.0.5"), "an address must not contain a password"),
        (("new", "10.0.0.5:22", "--port", "23"), "which port is it?"),
        (("new", "10.0.0.5", "--profile", "h10"), "did you mean `h100`?"),
        (("new", "10.0.0.5", "--python", "bin/python"), "is not absolute"),
        (("new", "10.0.0.5", "--workdir", "llm"), "is not absolute"),
        (("gpu1", "10.0.0.6"), "`address` is 10.0.0.5, [fe80::1]:2201, you ask for 10.0.0.6"),
        (("gpu2", "me@lab-b"), "`user` is you, you ask for me"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_mistake_is_an_error_before_any_connection(
    words: tuple[str, ...], message: str, desk: Desk
) -> None:
    desk.hosts(HOSTS)
    desk.config(CONFIG)
    shown = desk.cli("add", *words, code=2).stderr
    assert message in shown
    assert "connecting" not in shown
    assert desk.file.read_text() == HOSTS


def test_keys_that_ssh_config_disables_are_an_error(desk: Desk) -> None:
    desk.config("Host *\n  PubkeyAuthentication no\n")
    assert "PubkeyAuthentication" in desk.cli("add", "new", "10.0.0.5", code=2).stderr
