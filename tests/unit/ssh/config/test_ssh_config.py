"""ssh_config is read as OpenSSH reads it: against `ssh -G` where there is one, and by rule."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from safelaunch.errors import ConfigError
from safelaunch.model import Host
from safelaunch.ssh.config import reader as ssh_config
from safelaunch.ssh.config.local_user import LocalUser, current_user
from safelaunch.ssh.config.target import DEFAULT_AGENT, Target, resolve_target

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("gpu1", "gpu2.Example.com", "lab-7", "10.0.0.5", "bastion", "me@gpu1", "lab-7:2200")
LISTS = ("identityfile", "certificatefile")
SPANS = ("connecttimeout", "serveraliveinterval")

needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh to compare with")
posix = pytest.mark.skipif(sys.platform == "win32", reason="modes of files are POSIX")


# -- against the real one --------------------------------------------------------------------------


def real(config: Path, name: str) -> dict[str, Any]:
    """Return what `ssh -G` says; `user@host:port` is taken apart as its command line wants it."""
    user, _, rest = name.rpartition("@")
    host, _, port = rest.partition(":")
    words = [*(["-l", user] if user else []), *(["-p", port] if port else []), host]
    done = subprocess.run(
        ["ssh", "-G", "-F", str(config), *words],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    values: dict[str, Any] = {key: [] for key in LISTS}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        if key in LISTS:
            values[key].append(value)
        else:
            values[key] = value
    return values


def ours(config: Path, name: str) -> dict[str, Any]:
    """Return the same of ours, in the form of `ssh -G`."""
    local = current_user({})  # no HOME: the account's home folder, as ssh has it
    reached = resolve_target(name, None, local, config=str(config))
    host = name.rpartition("@")[2].partition(":")[0]
    user = name.rpartition("@")[0] or None
    options = ssh_config.effective_options(host, local, config=str(config), user=user)
    texts = {key: line.text for key in ("proxyjump", "proxycommand") if (line := options.line(key))}
    texts = {key: text.replace("ssh://", "") for key, text in texts.items() if text != "none"}
    if reached.agent != DEFAULT_AGENT:
        texts["identityagent"] = str(reached.agent)
    if reached.host_key_alias is not None:
        texts["hostkeyalias"] = reached.host_key_alias
    return {
        "hostname": reached.address,
        "port": str(reached.port),
        "user": reached.user,
        "userknownhostsfile": " ".join(reached.known_hosts),
        "addressfamily": reached.family,
        "stricthostkeychecking": {"yes": "true", "no": "false"}.get(reached.strict, reached.strict),
        "identitiesonly": "yes" if reached.identities_only else "no",
        "connecttimeout": shown(reached.connect_timeout, "none"),
        "serveraliveinterval": shown(reached.alive_interval, "0"),
        "serveralivecountmax": shown(reached.alive_count, "3"),
        **{key: list(dict.fromkeys(line.word() for line in options.lines(key))) for key in LISTS},
        **texts,
    }


def shown(number: float | None, unset: str) -> str:
    return unset if number is None else f"{number:g}"


def differences(config: Path, name: str) -> dict[str, Any]:
    """Return {key: (ours, ssh's)} of what differs."""
    mine, theirs = ours(config, name), real(config, name)
    if not mine["identityfile"]:
        del mine["identityfile"]  # the usual ones: they differ between the versions
    for key in ("proxyjump", "proxycommand", "hostkeyalias", "identityagent"):
        mine.setdefault(key, None)
    return {key: (got, theirs.get(key)) for key, got in mine.items() if got != theirs.get(key)}


TABLE = {
    "an empty file": "",
    "settings before the first Host": "User early\nHost gpu1\n  User late\n  Port 2222\n",
    "the first value wins": "Host gpu1\n  Port 1\nHost gpu*\n  Port 2\n  User two\nPort 3\n",
    "a negated pattern": "Host * !gpu1 !lab-?\n  User everywhere\n",
    "only a negated pattern": "Host !gpu1\n  User nowhere\n",
    "question marks": "Host lab-?\n  User one\nHost ??b-7\n  Port 7\n",
    "brackets are no pattern": "Host lab-[7]\n  User one\n",
    "identity files add up": "IdentityFile /a\nHost gpu1\n  IdentityFile /b\n  IdentityFile /a\n",
    "identity none": "Host gpu1\n  IdentityFile none\n  IdentityFile ~/b\n",
    "key=value": "Host=gpu1\nPort=77\nUser = bob\nIdentityFile=~/x\n",
    "quotes": 'Host "gpu1"\n  IdentityFile "~/my id"\n  User "bob"\n  CertificateFile \'/a b\'\n',
    "backslashes": 'Host gpu1\n  IdentityFile C:\\keys\\id\n  CertificateFile "a\\"b\\\\c\\d e"\n',
    "comments behind values": "Host gpu1 # mine\n  Port 44 # odd\n  IdentityFile ~/a#b\n",
    "case of keywords": "hOST gpu1\n  pORT 9\n  HOSTNAME Gpu.Example.COM\n",
    "case of patterns": "Host GPU1\n  User upper\nMatch host GPU1\n  Port 8\n",
    "CRLF": "Host gpu1\r\n  Port 5\r\n  User bob\r\n",
    "tabs": "Host\tgpu1\n\tPort\t5\n",
    "tokens in the host name": "HostName %h.cluster\nHost gpu1\n  User x\n",
    "a percent sign in the host name": "HostName a%%b\n",
    "match host sees the host name": "Host gpu1\n  HostName real.x\nMatch host real.x\n  Port 3\n",
    "match originalhost": "HostName real.x\nMatch originalhost gpu1,lab*\n  Port 3\n",
    "match user": "Host gpu1\n  User bob\nMatch user bob,me\n  Port 31\n",
    "match localuser": "Match localuser *\n  Port 32\nMatch !localuser *\n  User x\n",
    "match a list with a negation": "Match host *,!gpu1\n  Port 33\n",
    "match negated": "Match !host gpu1\n  Port 34\n",
    "match several": "Match host gpu* user me\n  Port 35\nMatch all\n  User all\n",
    "match with an equals sign": "Match host=gpu1\n  Port 36\n",
    "match quoted": 'Match host "gpu1,lab-7"\n  Port 37\n',
    "match final": "Match final host *.x\n  Port 38\nHost gpu1\n  HostName real.x\n",
    "hosts in match final": "Host *.x\n  Port 39\nHostName real.x\nMatch final\n  User f\n",
    "match canonical": "Match canonical\n  Port 40\n",
    "jump": "Host gpu*\n  ProxyJump me@bastion:2222\n",
    "several jumps": "Host gpu*\n  ProxyJump a,b@c:3,[fe80::1]:4\n",
    "jump as an address": "Host gpu*\n  ProxyJump ssh://u@a:3\n",
    "jump before command": "Host gpu*\n  ProxyJump a\n  ProxyCommand nc %h %p\n",
    "command before jump": "Host gpu*\n  ProxyCommand nc %h %p\n  ProxyJump a\n",
    "no jump": "Host gpu1\n  ProxyJump none\nHost gpu*\n  ProxyJump a\n",
    "no command": "Host gpu1\n  ProxyCommand none\nHost *\n  ProxyCommand nc\n",
    "no jump, then a command": "Host gpu1\n  ProxyJump none\nHost *\n  ProxyCommand nc %h\n",
    "a command as it stands": "ProxyCommand  sh -c \"nc '%h' %p\" # not a comment\n",
    "known hosts": "UserKnownHostsFile ~/kh1 /kh2 %d/kh3\nUserKnownHostsFile /late\n",
    "known hosts by alias": "Host gpu1\n  HostKeyAlias lab\n  UserKnownHostsFile ~/kh/%k\n",
    "known hosts with tokens": "UserKnownHostsFile /kh/%h/%n/%p/%r/%u/%i/%%\n",
    "times": "ConnectTimeout 1m30s\nServerAliveInterval 20\nServerAliveCountMax 5\n",
    "strict": "Host gpu1\n StrictHostKeyChecking accept-new\nHost *\n StrictHostKeyChecking off\n",
    "family and agent": "AddressFamily inet\nIdentityAgent ~/agent.sock\nIdentitiesOnly yes\n",
    "ignored ones": "SendEnv LANG LC_*\nSetEnv A=b\nForwardAgent yes\nHost gpu1\n  Port 6\n",
}  # fmt: skip


@needs_ssh
@pytest.mark.parametrize("case", TABLE)
def test_a_file_means_what_ssh_says_it_means(case: str, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(TABLE[case], encoding="utf-8", newline="")
    assert {name: keys for name in NAMES if (keys := differences(config, name))} == {}


def generated(seed: int, folder: Path) -> Path:
    """Write a file of random blocks, some of them behind Include, and return it."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    patterns = ("gpu1", "gpu?", "gpu*", "*.example.com", "*.Example.com", "lab-*", "10.0.*", "*")
    criteria = ("host {p}", "!host {p}", "originalhost {p}", "user me,root", "final", "all")
    settings = (
        "User u{n}", "Port {n}", "HostName h{n}.example.com", "HostName %h.lan", "ProxyJump j{n}",
        "HostName 10.0.0.{n}", "ProxyJump u@j{n}:{n},k{n}", "ProxyCommand c{n} %h",
        "ProxyJump none", "ProxyCommand none", "IdentityFile ~/k{n}", 'IdentityFile "/k {n}"',
        "IdentityFile=%d/k{n}",
        "UserKnownHostsFile ~/h{n} /h", "HostKeyAlias Alias{n}", "IdentitiesOnly yes",
        "ConnectTimeout {n}", "ServerAliveInterval {n}m", "StrictHostKeyChecking no",
        "AddressFamily inet6", "CertificateFile ~/c{n}", "  user=v{n} # comment",
    )  # fmt: skip

    def block(depth: int) -> list[str]:
        chosen = chance.sample(patterns, chance.randint(1, 3))
        negated = [f"!{p}" if chance.random() < 0.2 else p for p in chosen]
        first = "Host " + " ".join(negated)
        if chance.random() < 0.35:
            first = "Match " + chance.choice(criteria).format(p=",".join(negated))
        lines = [first]
        for setting in chance.choices(settings, k=chance.randint(1, 4)):
            lines += ["  " + setting.format(n=chance.randint(1, 99))]
        if depth < 3 and chance.random() < 0.3:
            file = folder / f"included-{seed}-{len(os.listdir(folder))}"
            file.touch()
            body = [line for _ in range(2) for line in block(depth + 1)]
            file.write_text("\n".join(body[chance.randint(0, 1) :]) + "\n", encoding="utf-8")
            lines.insert(chance.randint(1, len(lines)), f"  Include {file} {folder}/no-such-*")
        return lines

    config = folder / f"config-{seed}"
    hops = ["Host j? j?? k? k??", "  ProxyJump none", "  ProxyCommand none"]  # else they go round
    text = [*hops, *(line for _ in range(chance.randint(2, 7)) for line in block(0))]
    config.write_text("\n".join(text) + "\n", encoding="utf-8")
    return config


@needs_ssh
@pytest.mark.parametrize("seed", range(48))
def test_a_generated_file_means_what_ssh_says_it_means(seed: int, tmp_path: Path) -> None:
    config = generated(seed, tmp_path)
    wrong = {name: keys for name in NAMES[::2] if (keys := differences(config, name))}
    assert wrong == {}, config.read_text(encoding="utf-8")


@needs_ssh
def test_identity_files_are_the_ones_that_ssh_opens(tmp_path: Path) -> None:
    config = tmp_path / "config"
    lines = [
        "~/x",
        "~root/r",
        "%d/%h-%n-%p-%r-%u-%i-%k-%%",
        f"{tmp_path}/${{WHERE}}/id",
        "relative",
    ]
    text = "".join(f"  IdentityFile {line}\n" for line in lines)
    text += "  HostName Real.x\n  HostKeyAlias Lab\n  User bob\n  ProxyCommand false\n"
    config.write_text(f"Host gpu1\n{text}", encoding="utf-8")
    environ = {**os.environ, "WHERE": "here"}
    done = subprocess.run(
        ["ssh", "-v", "-F", str(config), "-oBatchMode=yes", "-p", "29", "gpu1", "true"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    tried = [line.split() for line in done.stderr.splitlines() if "identity file" in line]
    files = [words[3] for words in tried if not words[3].endswith("-cert")]
    local = current_user({"WHERE": "here"})
    reached = resolve_target("gpu1", Host("gpu1", port=29), local, config=str(config))
    assert list(reached.identities) == files


# -- by rule ---------------------------------------------------------------------------------------


@pytest.fixture
def local(tmp_path: Path) -> LocalUser:
    """A user with a home folder of their own; the system's file is left to `reach`."""
    (tmp_path / ".ssh").mkdir(mode=0o700)
    return LocalUser(str(tmp_path), "me", {"SOCK": "/run/agent", "EMPTY": ""}, "1000", "desk.lan")


def reach(local: LocalUser, text: str, name: str = "gpu1", host: Host | None = None) -> Target:
    config = os.path.join(local.home, "config")
    with open(config, "w", encoding="utf-8") as file:
        file.write(text)
    return resolve_target(name, host, local, config=config)


def refused(local: LocalUser, text: str, name: str = "gpu1") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        reach(local, text, name)
    return caught.value


def test_without_any_file_the_name_is_the_address(local: LocalUser) -> None:
    target = resolve_target("gpu1.lan", None, local)
    assert (target.address, target.port, target.user) == ("gpu1.lan", 22, "me")
    assert target.identities[0] == f"{local.home}/.ssh/id_ed25519"
    assert not target.identities_configured
    assert target.known_hosts[0] == f"{local.home}/.ssh/known_hosts"
    assert target.agent == DEFAULT_AGENT


def test_user_and_port_of_the_name_go_before_the_files(local: LocalUser) -> None:
    target = reach(local, "Host gpu1\n  User bob\n  Port 9\n", "me@gpu1:2222")
    assert (target.address, target.user, target.port) == ("gpu1", "me", 2222)


@pytest.mark.parametrize(
    ("name", "address", "port"),
    [
        ("fe80::1%eth0", "fe80::1%eth0", 22),
        ("[fe80::1]:2222", "fe80::1", 2222),
        ("[fe80::1]", "fe80::1", 22),
        ("ssh://gpu1:24/", "gpu1", 24),
    ],
)
def test_an_address_may_be_of_any_kind(
    name: str, address: str, port: int, local: LocalUser
) -> None:
    target = reach(local, "", name)
    assert (target.address, target.port) == (address, port)


@pytest.mark.parametrize(
    "name",
    ["", "a b", "-oProxyCommand=x", "$(id)", "a;b", "a`b`", "x@", "@x", "a/b", "a:99999", "a:0"],
)
def test_what_could_reach_a_shell_is_no_host(name: str, local: LocalUser) -> None:
    assert refused(local, "ProxyCommand nc %h %p\n", name)


def test_a_password_in_an_address_is_refused_and_not_repeated(local: LocalUser) -> None:
    error = refused(local, "", "me:hunter2@gpu1")
    assert "password" in error.message
    assert "hunter2" not in f"{error} {error.hint}"


def test_the_users_file_goes_before_the_systems(local: LocalUser, tmp_path: Path) -> None:
    (tmp_path / ".ssh" / "config").write_text("Host gpu1\n  Port 4\n", encoding="utf-8")
    (tmp_path / "ssh").mkdir()
    (tmp_path / "ssh" / "ssh_config").write_text(
        "Include more\nHost *\n  Port 5\n  User all\n", encoding="utf-8"
    )
    (tmp_path / "ssh" / "more").write_text("ServerAliveInterval 9\n", encoding="utf-8")

    class Elsewhere(LocalUser):
        @property
        def system_folder(self) -> str:
            return str(tmp_path / "ssh")

    target = resolve_target("gpu1", None, Elsewhere(*local))
    assert (target.port, target.user, target.alive_interval) == (4, "all", 9)


def test_a_relative_include_starts_in_the_folder_of_ssh(local: LocalUser, tmp_path: Path) -> None:
    (tmp_path / ".ssh" / "conf.d").mkdir()
    (tmp_path / ".ssh" / "conf.d" / "b").write_text("Port 2\nUser b\n", encoding="utf-8")
    (tmp_path / ".ssh" / "conf.d" / "a").write_text("Port 1\n", encoding="utf-8")
    target = reach(local, "Include conf.d/* ~/.ssh/none\n")
    assert (target.port, target.user) == (1, "b")


def test_an_include_in_a_block_applies_with_it_and_does_not_end_it(
    local: LocalUser, tmp_path: Path
) -> None:
    (tmp_path / ".ssh" / "lab").write_text("Host gpu1\n  Port 7\nHost other\n", encoding="utf-8")
    text = "Host gpu*\n  Include lab\n  User lab\n"
    assert (reach(local, text).port, reach(local, text).user) == (7, "lab")
    assert reach(local, "Host nobody\n  Include lab\n").port == 22


def test_a_file_that_includes_itself_is_refused(local: LocalUser, tmp_path: Path) -> None:
    (tmp_path / ".ssh" / "loop").write_text("Include loop\n", encoding="utf-8")
    error = refused(local, "Include loop\n")
    assert error.where == "~/.ssh/loop:1"
    assert "deeper than 16" in error.message


@posix
@pytest.mark.parametrize("mode", [0o666, 0o620])
def test_a_file_that_others_may_write_to_is_refused(
    mode: int, local: LocalUser, tmp_path: Path
) -> None:
    (tmp_path / ".ssh" / "config").write_text("ProxyCommand evil\n", encoding="utf-8")
    (tmp_path / ".ssh" / "config").chmod(mode)
    with pytest.raises(ConfigError, match="other users may write"):
        resolve_target("gpu1", None, local)


@posix
def test_a_pipe_is_not_waited_for(local: LocalUser, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".ssh" / "config", 0o600)
    assert resolve_target("gpu1", None, local).port == 22


def test_no_command_of_a_match_is_run(local: LocalUser, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    target = reach(local, f'Match host gpu1 exec "touch {mark}"\n  User x\nMatch all\n  Port 6\n')
    assert (target.user, target.port) == ("me", 6)
    assert target.unsupported == ("~/config:1: `Match exec`",)
    assert not mark.exists()


def test_a_command_that_does_not_matter_is_not_mentioned(local: LocalUser) -> None:
    assert reach(local, "Match host other exec true\n  User x\n").notes == ()


BAD = {
    "Host gpu1\n  Port\n": ("~/config:2", "`port` without a value"),
    "Port 22 23\n": ("~/config:1", "takes one word, got 2 words"),
    "\n\nPort abc\n": ("~/config:3", "`abc` is not a port"),
    'User "bob\n': ("~/config:1", "unterminated quote"),
    "ProxyJump a,,b\n": ("~/config:1", "is not a host"),
    "ProxyJump me:secret@a\n": ("~/config:1", "a password"),
    "ProxyCommand nc %z\n": ("~/config:1", "`%z` is not supported"),
    "HostName %n\n": ("~/config:1", "`%n` is not supported"),
    "Match hst gpu1\n": ("~/config:1", "unknown criterion `hst`"),
    "Match host\n": ("~/config:1", "without a value"),
    "StrictHostKeyChecking maybe\n": ("~/config:1", "cannot be `maybe`"),
    "AddressFamily inet4\n": ("~/config:1", "cannot be `inet4`"),
    "ConnectTimeout soon\n": ("~/config:1", "`soon` is not a time"),
    "ServerAliveCountMax x\n": ("~/config:1", "`x` is not a number"),
    "= 5\n": ("~/config:1", "no keyword"),
}


@pytest.mark.parametrize("text", BAD)
def test_an_error_names_file_and_line(text: str, local: LocalUser) -> None:
    where, message = BAD[text]
    error = refused(local, text)
    assert error.where == where
    assert message in error.message


def test_powershells_encoding_is_named(local: LocalUser, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Port 3\n", encoding="utf-16")
    with pytest.raises(ConfigError, match="UTF-16"):
        resolve_target("gpu1", None, local, config=str(tmp_path / "config"))


def test_a_byte_order_mark_is_no_keyword(local: LocalUser) -> None:
    assert reach(local, "\ufeffPort 3\n").port == 3


def test_a_file_given_by_name_must_be_there(local: LocalUser) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        resolve_target("gpu1", None, local, config="/no/such/config")


def test_unknown_keywords_are_left_to_ssh(local: LocalUser) -> None:
    assert reach(local, "UseKeychain yes\nObscureKeystrokeTiming no\nPort 3\n").port == 3


# -- hops ------------------------------------------------------------------------------------------


def steps(target: Target) -> list[str]:
    return [f"{hop.user}@{hop.address}:{hop.port}" for hop in (*target.jumps, target)]


def test_each_hop_is_looked_up_like_a_host(local: LocalUser) -> None:
    text = """
Host gpu1
  ProxyJump bob@door:2200,inner
Host door
  HostName door.example.com
  IdentityFile ~/.ssh/door
Host inner
  User in
  Port 23
"""
    target = reach(local, text)
    assert steps(target) == ["bob@door.example.com:2200", "in@inner:23", "me@gpu1:22"]
    assert target.jumps[0].identities == (f"{local.home}/.ssh/door",)
    assert [hop.jumps for hop in target.jumps] == [(), ()]


def test_the_first_hop_may_have_a_way_of_its_own(local: LocalUser) -> None:
    text = """
Host gpu1
  ProxyJump b,c
Host b
  ProxyJump a
Host c
  ProxyJump not-this-one
Host a
  ProxyCommand corkscrew proxy 8080 %h %p
"""
    target = reach(local, text)
    assert steps(target) == ["me@a:22", "me@b:22", "me@c:22", "me@gpu1:22"]
    assert target.jumps[0].proxy_command == "corkscrew proxy 8080 a 22"
    assert target.proxy_command is None


def test_the_user_of_the_host_is_not_the_user_of_its_jump(local: LocalUser) -> None:
    target = reach(local, "Host gpu1\n  User bob\n  ProxyJump door\n")
    assert steps(target) == ["me@door:22", "bob@gpu1:22"]


@pytest.mark.parametrize(
    "text", ["Host *\n  ProxyJump door\n", "Host gpu1\n  ProxyJump a,b\nHost a\n ProxyJump gpu1\n"]
)
def test_a_way_that_goes_round_is_refused(text: str, local: LocalUser) -> None:
    error = refused(local, text)
    assert "is its own jump host" in error.message
    assert error.where in ("~/config:2", "~/config:4")


# -- files and the rest ----------------------------------------------------------------------------


def test_a_variable_that_is_not_set_leaves_its_file_out(local: LocalUser) -> None:
    target = reach(local, "IdentityFile ${NO}/id\nIdentityFile ${SOCK}/id\n")
    assert target.identities == ("/run/agent/id",)
    assert target.notes == ("~/config:1: `${NO}/id` is ignored, $NO is not set",)


@pytest.mark.parametrize(
    ("value", "agent"),
    [
        ("none", None),
        ("SSH_AUTH_SOCK", DEFAULT_AGENT),
        ("$SOCK", "/run/agent"),
        ("$UNSET", None),
        ("${SOCK}.2", "/run/agent.2"),
        ("/run/%u.sock", "/run/me.sock"),
    ],
)
def test_the_agent_is_the_one_named(value: str, agent: str | None, local: LocalUser) -> None:
    assert reach(local, f"IdentityAgent {value}\n").agent == agent


def test_ways_to_log_in_keep_their_order_less_those_switched_off(local: LocalUser) -> None:
    text = "PreferredAuthentications password,hostbased,publickey\n"
    assert reach(local, text).authentications == ("password", "publickey")
    assert reach(local, "PasswordAuthentication no\n").authentications == (
        "publickey",
        "keyboard-interactive",
    )


def test_what_is_not_supported_is_noted_with_its_line(local: LocalUser) -> None:
    target = reach(local, "KnownHostsCommand /bin/keys\nCanonicalizeHostname no\n")
    assert target.unsupported == ("~/config:1: `knownhostscommand`",)


def test_what_debian_asks_for_everywhere_is_no_news_of_a_host(local: LocalUser) -> None:
    assert reach(local, "Host *\n  GSSAPIAuthentication yes\n  SendEnv LANG LC_*\n").notes == ()


def test_names_are_those_that_the_files_spell_out(local: LocalUser, tmp_path: Path) -> None:
    (tmp_path / ".ssh" / "more").write_text("Host c\nInclude more\n", encoding="utf-8")
    (tmp_path / "config").write_text("Host a b *.x !d\nInclude more\n", encoding="utf-8")
    assert ssh_config.declared_hosts(local, config=str(tmp_path / "config")) == ["a", "b", "c"]


# -- entries of the hosts file ---------------------------------------------------------------------

CONFIG = "Host lab-a\n  HostName 10.0.0.5\n  User bob\n  Port 2222\n  IdentityFile ~/lab\n"


def test_an_entry_may_be_called_otherwise_in_ssh_config(local: LocalUser) -> None:
    target = reach(local, CONFIG, "gpu1", Host("gpu1", ssh="lab-a"))
    assert (target.name, target.address) == ("gpu1", "10.0.0.5")
    assert (target.port, target.user) == (2222, "bob")


def test_an_entry_goes_before_ssh_config(local: LocalUser) -> None:
    entry = Host("gpu1", ssh="lab-a", user="me2", port=24, identity="~/keys/id")
    target = reach(local, CONFIG, "gpu1", entry)
    assert (target.user, target.port) == ("me2", 24)
    assert target.identities == (f"{local.home}/keys/id", f"{local.home}/lab")


def test_each_address_of_an_entry_is_a_way_of_its_own(local: LocalUser) -> None:
    text = "Host *.example.com\n  ProxyJump door\n  User outside\n"
    entry = Host("gpu1", addresses=("10.0.0.5", "lab.example.com:2201"), port=2200)
    target = reach(local, text, "gpu1", entry)
    assert steps(target) == ["me@10.0.0.5:2200"]
    assert [steps(other) for other in target.others] == [
        ["me@door:22", "outside@lab.example.com:2201"]
    ]


def test_an_entry_without_an_address_is_looked_up_by_its_name(local: LocalUser) -> None:
    assert reach(local, CONFIG, "lab-a", Host("lab-a", profile="h100")).address == "10.0.0.5"


def test_the_key_of_an_entry_is_offered_before_and_without_the_agents(local: LocalUser) -> None:
    named = Host("gpu1", identity="~/.ssh/lab")
    text = "IdentityFile ~/.ssh/other\nIdentitiesOnly no\n"
    target = reach(local, text, host=named)
    folder = f"{local.home}/.ssh"
    assert target.identities == (f"{folder}/lab", f"{folder}/other")
    assert target.identities_only
    assert not reach(local, text, host=Host("gpu1")).identities_only


# -- Windows ---------------------------------------------------------------------------------------


def test_windows_has_its_own_folders() -> None:
    local = LocalUser(r"C:\Users\me", "me", {"PROGRAMDATA": r"D:\Data"}, windows=True)
    target = resolve_target("gpu1", Host("gpu1", identity=r"~\.ssh\lab"), local)
    assert target.identities == (r"C:\Users\me\.ssh\lab",)
    assert target.known_hosts[0] == r"C:\Users\me\.ssh\known_hosts"
    assert target.system_known_hosts[0] == r"D:\Data\ssh\ssh_known_hosts"
    assert local.config == r"C:\Users\me\.ssh\config"
    assert local.shown(local.config) == "~/.ssh/config"


def test_windows_paths_in_a_file_stay_as_they_are(local: LocalUser) -> None:
    text = 'IdentityFile C:\\keys\\id\nIdentityFile "C:\\Program Files\\id"\nIdentityFile ~/id\n'
    target = reach(local._replace(windows=True), text)
    assert target.identities[:2] == (r"C:\keys\id", r"C:\Program Files\id")
