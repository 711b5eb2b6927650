"""The hosts file: how a machine is reached, what lies on it, its hub, and groups of machines."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.project import PYTHON, TORCHRUN, Project

from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.config.hosts_file.add_entry import with_entry
from safelaunch.config.resolve import Flags
from safelaunch.errors import ConfigError
from safelaunch.model import Host, Origin

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.config.hosts_file.reader import Hosts

OFFLINE = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def read(home: Path, text: str) -> Hosts:
    (home / "hosts.yaml").write_text(text, encoding="utf-8")
    return hosts_file.load_default(str(home))


def entry(home: Path, text: str, name: str = "gpu1") -> Host:
    return read(home, f"hosts:\n  {name}: {text}\n").machines[name]


def refused(home: Path, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(home, text)
    return caught.value


# -- how a machine is reached ----------------------------------------------------------------------


def test_no_file_means_no_hosts(home: Path) -> None:
    assert hosts_file.load_default(str(home)) == hosts_file.Hosts({}, {})


def test_a_link_to_nowhere_is_no_missing_file(home: Path) -> None:
    (home / "hosts.yaml").symlink_to(home / "gone.yaml")
    with pytest.raises(ConfigError, match="no such file"):
        hosts_file.load_default(str(home))


def test_an_entry_says_how_the_machine_is_reached(home: Path) -> None:
    host = entry(home, "{address: 10.0.0.5, user: bob, port: 2222, identity: ~/.ssh/lab}")
    assert host == Host(
        "gpu1", addresses=("10.0.0.5",), user="bob", port=2222, identity="~/.ssh/lab"
    )


def test_an_entry_may_be_empty_or_name_another_entry_of_ssh_config(home: Path) -> None:
    assert entry(home, "") == Host("gpu1")
    assert entry(home, "{ssh: lab-a}").ssh == "lab-a"


def test_a_machine_may_have_several_addresses(home: Path) -> None:
    addresses = '[10.0.0.5, lab.example.com:2201, "fe80::1%eth0", "[fe80::2]:24"]'
    assert entry(home, f"{{address: {addresses}}}").addresses == (
        "10.0.0.5",
        "lab.example.com:2201",
        "fe80::1%eth0",
        "[fe80::2]:24",
    )


@pytest.mark.parametrize(
    ("written", "identity"),
    [
        ("~/.ssh/lab", "~/.ssh/lab"),
        (r"~\.ssh\lab", r"~\.ssh\lab"),
        (r"C:\Users\me\.ssh\lab", r"C:\Users\me\.ssh\lab"),
        ("/etc/keys/lab", "/etc/keys/lab"),
        ("keys/lab", "HOME/keys/lab"),
    ],
)
def test_a_key_file_lies_on_this_machine(written: str, identity: str, home: Path) -> None:
    assert entry(home, f"{{identity: '{written}'}}").identity == identity.replace("HOME", str(home))


# -- what lies on it -------------------------------------------------------------------------------


def test_paths_of_a_host_are_its_own(home: Path) -> None:
    host = entry(home, "{venv: /opt/envs/../rl, workdir: /srv/llm/}")
    assert host.interpreter is not None
    assert (host.interpreter.path, host.workdir) == ("/opt/rl/bin/python", "/srv/llm")


def test_the_working_directory_may_lie_in_the_hosts_home(home: Path) -> None:
    assert entry(home, "{workdir: ~/work/llm/}").workdir == "~/work/llm"


@pytest.mark.parametrize(("value", "folder"), [
    ("shared", None),
    ("shared:~/work/llm/", "~/work/llm"),
    ("shared:/srv/llm", "/srv/llm"),
])  # fmt: skip
def test_a_folder_may_be_shared_by_all_checkouts(
    home: Path, value: str, folder: str | None
) -> None:
    host = entry(home, f"{{workdir: '{value}'}}")
    assert (host.workdir, host.is_shared) == (folder, True)
    assert not entry(home, "{workdir: /srv/shared}").is_shared


def test_paths_of_this_machine_are_relative_to_the_file(home: Path) -> None:
    host = entry(home, "{venv: env, workdir: ../work}", "localhost")
    assert host.interpreter is not None
    assert host.interpreter.path == f"{home}/env/bin/python"
    assert host.workdir == f"{home.parent}/work"


# -- mistakes --------------------------------------------------------------------------------------

BAD = {
    "{ssh: a, address: b}": ("b}", "`ssh` and `address` together", "has the address"),
    "{address: me@b}": ("me@", "a user in an address", "`address: b` and `user: me`"),
    "{address: a b}": ("a b", "`a b` is no address", ""),
    "{address: -oProxyCommand=x}": ("-o", "is no address", ""),
    "{address: []}": ("[]", "expected a list of addresses, got an empty list", ""),
    "{ssh: -v}": ("-v", "is no name of ~/.ssh/config", ""),
    "{port: 70000}": ("7", "expected a port", ""),
    "{port: 022}": ("0", "expected a port", ""),
    "{user: 'a;b'}": ("'a", "is no user name", ""),
    "{hostname: a}": ("host", "unknown key `hostname`", "did you mean `address`"),
    "{private_key: ~/.ssh/id}": ("priv", "unknown key `private_key`", "did you mean `identity`"),
    "{adress: a}": ("adr", "unknown key `adress`", "did you mean `address`?"),
    "{workdir: work}": ("work}", "`work` is not absolute", "such as /home/me/llm"),
    "{workdir: 'shared:llm'}": ("'shared", "`llm` is not absolute", "such as /home/me/llm"),
    "{workdir: ~you/work}": ("~", "`~you/work` is not absolute", ""),
    "{python: ~/env/bin/python}": ("~", "is not absolute", "`workdir` and `identity` only"),
    "{venv: ./env}": ("./", "`./env` is not absolute", "it is a path on the host"),
    "{identity: ~you/key}": ("~", "`~/` is the only form", ""),
    "{hub: hf-mirror.example}": ("hf", "expected online", "`https://hf-mirror.example`?"),
    "{hub: ofline}": ("of", "expected online, offline", ""),
    "{profile: cpu, facts: {nccl: new}}": ("new", "`new` is no version", ""),
}


@pytest.mark.parametrize("text", BAD)
def test_a_mistake_in_an_entry_is_told_with_its_place(text: str, home: Path) -> None:
    at, message, hint = BAD[text]
    line = f"  gpu1: {text}"
    error = refused(home, f"hosts:\n{line}\n")
    assert error.where == f"{home}/hosts.yaml:2:{line.index(at) + 1}"
    assert message in error.message
    assert hint in (error.hint or "")


@pytest.mark.parametrize("key", ["ssh", "address", "user", "port", "identity"])
def test_this_machine_is_not_reached_from_elsewhere(key: str, home: Path) -> None:
    error = refused(home, f"hosts:\n  localhost: {{{key}: 22}}\n")
    assert "this machine" in error.message


SECRETS = (
    "  gpu1: {password: hunter2}",
    "  gpu1: {Pass: hunter2}",
    "  gpu1: {ssh_pass: hunter2}",
    "  gpu1: {ssh-password: hunter2}",
    "  gpu1: {pasword: hunter2}",
    "  gpu1: {passphrase: hunter2}",
    "  gpu1: {pwd: hunter2}",
    "  gpu1: {token: hunter2}",
    "  gpu1: {address: 'me:hunter2@b'}",
    "  gpu1: {ssh: 'me:hunter2@b'}",
    "  gpu1: {ssh: 'ssh://me:hunter2@b'}",
    "  'me:hunter2@gpu1': {}",
    "  gpu1: {env: {HF_TOKEN: hunter2}}",
    "  gpu1: {setup: [export API_KEY=hunter2]}",
    "  gpu1: {hub: 'https://me:hunter2@mirror.example'}",
    "  gpu1: {user: 'me:hunter2'}",
    "  gpu1: {identity: '-----BEGIN OPENSSH PRIVATE KEY----- hunter2'}",
    "  gpu1: {}\npassword: hunter2",
)


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_refused_with_what_to_do_and_not_repeated(text: str, home: Path) -> None:
    error = refused(home, f"hosts:\n{text}\n")
    assert "hunter2" not in f"{error} {error.hint}"
    if "pass" in text.lower() or "pwd" in text:
        assert "hosts add" in (error.hint or "")


# -- the hub ---------------------------------------------------------------------------------------


def planned(
    tmp_path: Path, hub: str, job: str = "", more: str = ""
) -> dict[str, tuple[object, str]]:
    project = Project(tmp_path / "project")
    project.write(f"hosts:\n  localhost:\n    hub: {hub}\n{more}", "hosts.yaml")
    env = project.node(PYTHON + job, Flags(hosts_file="hosts.yaml")).env
    names = OFFLINE | {"HF_ENDPOINT"}
    return {name: (env[name].value, str(env[name].origin)) for name in names if name in env}


def test_a_mirror_sets_the_endpoint_and_lifts_the_offline_switches(tmp_path: Path) -> None:
    where = "hosts.yaml:3:10"
    assert planned(tmp_path, "https://mirror.example/hf") == {
        "HF_ENDPOINT": ("https://mirror.example/hf", where),
        **dict.fromkeys(OFFLINE, (None, where)),
    }


def test_offline_sets_the_switches(tmp_path: Path) -> None:
    assert planned(tmp_path, "offline") == dict.fromkeys(OFFLINE, ("1", "hosts.yaml:3:10"))


def test_online_lifts_what_the_machine_may_have_set(tmp_path: Path) -> None:
    assert {value for value, _ in planned(tmp_path, "online").values()} == {None}


def test_a_job_and_the_hosts_own_env_win_over_its_hub(tmp_path: Path) -> None:
    variables = planned(
        tmp_path,
        "offline",
        job="env: {HF_HUB_OFFLINE: 0}\n",
        more="    env: {HF_DATASETS_OFFLINE: 0}\n",
    )
    assert variables == {
        "HF_HUB_OFFLINE": ("0", "job.yaml:3:23"),
        "HF_DATASETS_OFFLINE": ("0", "hosts.yaml:4:32"),
        "TRANSFORMERS_OFFLINE": ("1", "hosts.yaml:3:10"),
    }


# -- groups ----------------------------------------------------------------------------------------

LAB = "hosts: {gpu1: , gpu2: {profile: cpu}, box: }\ngroups:\n"


def test_a_group_stands_for_its_machines_in_order(home: Path) -> None:
    hosts = read(home, LAB + "  lab: [gpu2, gpu1]\n  one: [gpu1]\n")
    assert hosts_file.expand(hosts, ("box", "lab")) == ("box", "gpu2", "gpu1")
    assert hosts_file.expand(hosts, ("nobody",)) == ("nobody",)


BAD_GROUPS = {
    "  lab: [gpu1, gpu3]\n": ("3:15", "unknown host `gpu3`", "did you mean"),
    "  lab: [gpu1, elsewhere]\n": ("3:15", "unknown host `elsewhere`", "may be empty"),
    "  lab: [gpu1, gpu1]\n": ("3:8", "listed twice", ""),
    "  lab: []\n": ("3:8", "expected a list of hosts", ""),
    "  lab: gpu1\n": ("3:8", "expected a list of hosts", ""),
    "  lab: [[gpu1]]\n": ("3:9", "expected the name of a host", ""),
    "  gpu1: [gpu2]\n": ("3:3", "`gpu1` is a host already", ""),
    "  -x: [gpu2]\n": ("3:3", "is no host name", ""),
    "  [gpu2]\n": ("3:3", "expected a mapping such as", ""),
}


@pytest.mark.parametrize("text", BAD_GROUPS)
def test_a_mistake_in_a_group_is_told_with_its_place(text: str, home: Path) -> None:
    where, message, hint = BAD_GROUPS[text]
    error = refused(home, LAB + text)
    assert error.where == f"{home}/hosts.yaml:{where}"
    assert message in error.message
    assert hint in (error.hint or "")


def test_other_keys_at_the_top_are_refused(home: Path) -> None:
    assert refused(home, "hosts: {a: }\ngroup: {}\n").hint == "did you mean `groups`?"


def test_a_group_is_among_the_names_that_a_typo_may_have_meant(home: Path) -> None:
    hosts = read(home, LAB + "  cluster: [gpu2]\n")
    with pytest.raises(ConfigError) as caught:
        hosts_file.select(hosts, "clutser", Origin("job.yaml", 1, 1))
    assert caught.value.hint == "did you mean `cluster`?"


# -- who reads it ----------------------------------------------------------------------------------


def test_a_dry_run_does_not_read_the_users_own_hosts(tmp_path: Path, home: Path) -> None:
    project = Project(tmp_path / "project")
    project.write(TORCHRUN)
    (home / "hosts.yaml").write_text("not: {a: hosts file", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "safelaunch", "run", "--dry-run", "job.yaml"],
        cwd=project.folder,
        env={**os.environ, "SAFELAUNCH_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# -- adding an entry -------------------------------------------------------------------------------

FIELDS = {"address": ["10.0.0.5", "[fe80::1]:24"], "user": "me", "identity": "~/.ssh/it's"}
ADDED = """  gpu1:
    address: [10.0.0.5, '[fe80::1]:24']
    user: me
    identity: '~/.ssh/it''s'
"""
FILES = {
    "": "hosts:\n" + ADDED,
    "# mine\n": "# mine\nhosts:\n" + ADDED,
    "hosts:\n": "hosts:\n" + ADDED,
    "hosts:\n  a:  # one\n    port: 3": "hosts:\n  a:  # one\n    port: 3\n" + ADDED,
    "hosts:\n  a:\n\n# groups\ngroups: {}\n": f"hosts:\n  a:\n{ADDED}\n# groups\ngroups: {{}}\n",
    "groups: {}\nhosts:\n  a: {port: 3}\n": "groups: {}\nhosts:\n  a: {port: 3}\n" + ADDED,
    "hosts:\n    a:\n": "hosts:\n    a:\n" + ADDED.replace("  ", "    "),
    "hosts:\r\n  a:\r\n": ("hosts:\n  a:\n" + ADDED).replace("\n", "\r\n"),
}


@pytest.mark.parametrize("text", FILES)
def test_an_entry_is_added_and_the_rest_stays(text: str, home: Path) -> None:
    new = with_entry(text, "hosts.yaml", "gpu1", FIELDS)
    assert new == FILES[text]
    (home / "hosts.yaml").write_bytes(new.encode())
    host = hosts_file.load_default(str(home)).machines["gpu1"]
    assert host == Host(
        "gpu1", addresses=("10.0.0.5", "[fe80::1]:24"), user="me", identity="~/.ssh/it's"
    )


@pytest.mark.parametrize("text", ["hosts: {a: }\n", "hosts: {}\n", "hosts: &x {a: }\n"])
def test_a_file_that_only_its_author_should_change_is_left_alone(text: str) -> None:
    with pytest.raises(ConfigError, match="cannot be added") as caught:
        with_entry(text, "hosts.yaml", "gpu1", {"user": "me"})
    assert "gpu1: {user: me}" in (caught.value.hint or "")


def test_an_entry_that_is_there_is_not_added_again() -> None:
    with pytest.raises(ConfigError) as caught:
        with_entry("hosts:\n  gpu1:\n", "hosts.yaml", "gpu1", FIELDS)
    assert caught.value.where == "hosts.yaml:2:3"
