from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import REPOSITORY
from support.ssh import sshd
from support.ssh.clients import (
    MIB,
    Person,
    everything,
    fails,
    ours,
    output,
    refused_port,
    through,
    upload,
)
from support.ssh.faulty_proxy import DOWN, UP, Faults
from support.ssh.sshd import ROOT, Sshd
from support.workspace import DEADLINE, wait_for

from safelaunch.ssh import errors, handshake, retries
from safelaunch.ssh.connection import Connection, connect
from safelaunch.ssh.errors import (
    ConnectionLost,
    LoginFailed,
    NoCommandSession,
    NoCommonAlgorithm,
    Unreachable,
    UntrustedHostKey,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


pytestmark = pytest.mark.skipif(sshd.missing() is not None, reason=str(sshd.missing()))
root_only = pytest.mark.skipif(
    not ROOT, reason="only root can give a server its own passwords and users"
)


@pytest.fixture
def faults(server: Sshd) -> Iterator[Faults]:
    with Faults(server.address, server.port) as faults:
        yield faults


@pytest.fixture(autouse=True)
def silent(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Nothing of ours, and nothing of Paramiko's threads, comes onto the screen."""
    yield
    assert capfd.readouterr() == ("", "")


# -- commands


def test_a_command_has_its_output_errors_and_exit_code(connection: Connection) -> None:
    with connection.exec("cat; echo oops >&2; exit 7") as channel:
        channel.write(b"some bytes\0\xff")
        channel.close_stdin()
        assert everything(channel) == b"some bytes\0\xff"
        assert channel.exit_code(20) == 7
        assert channel.stderr_tail() == "oops\n"
        assert channel.read(10) == b""


def test_eight_mebibytes_on_each_stream_do_not_block(connection: Connection) -> None:
    both = "head -c 8388608 /dev/zero; head -c 8388608 /dev/zero | tr '\\0' e >&2; echo >&2; "
    both += "echo the end >&2"
    with connection.exec(both) as channel:
        assert len(everything(channel)) == 8 * MIB
        assert channel.exit_code(20) == 0
        assert channel.stderr_tail().endswith("the end\n")
        assert len(channel.stderr_tail()) <= 1 << 17


def test_errors_are_drained_while_nobody_reads(connection: Connection) -> None:
    with connection.exec("head -c 8388608 /dev/zero >&2; echo done; cat") as channel:
        assert channel.read(100) == b"done\n"


def test_bytes_come_back_as_they_went(connection: Connection) -> None:
    data = os.urandom(8 * MIB)
    with connection.exec("cat") as channel:

        def send() -> None:
            channel.write(data)
            channel.close_stdin()

        writer = threading.Thread(target=send)
        writer.start()
        assert everything(channel) == data
        writer.join()


@pytest.mark.parametrize("limit", [{"RekeyLimit": "1M"}, {}], ids=["there", "here"])
def test_new_keys_on_the_way_lose_nothing(
    limit: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not limit:
        monkeypatch.setattr("paramiko.packet.Packetizer.REKEY_BYTES", MIB)
    data = os.urandom(8 * MIB)
    with Sshd(limit) as server, connect(server.target()) as connection:
        with connection.exec("sha256sum; head -c 8388608 /dev/zero") as channel:
            channel.write(data)
            channel.close_stdin()
            output = everything(channel)
        digest = hashlib.sha256(data).hexdigest().encode()
        assert output == digest + b"  -\n" + bytes(8 * MIB)


def test_a_command_killed_by_a_signal_ends_with_255(connection: Connection) -> None:
    with connection.exec("kill -9 $$") as channel:
        assert everything(channel) == b""
        assert channel.exit_code(20) == 255


def test_a_command_that_runs_has_no_exit_code_yet(connection: Connection) -> None:
    with connection.exec("cat") as channel:
        assert channel.exit_code(0) is None
        channel.close_stdin()
        assert channel.exit_code(20) == 0


def test_writing_to_a_command_that_has_ended_is_a_broken_pipe(connection: Connection) -> None:
    with connection.exec("exec true") as channel:
        assert channel.exit_code(20) == 0
        with pytest.raises(BrokenPipeError):
            upload(channel)
    assert output(connection, "echo still here") == "still here\n"


def test_commands_run_beside_each_other(connection: Connection) -> None:
    with connection.exec("cat") as first, connection.exec("cat") as second:
        second.write(b"2")
        assert second.read(1) == b"2"
        first.write(b"1")
        assert first.read(1) == b"1"


def test_a_pty_has_the_size_of_the_terminal(connection: Connection) -> None:
    with connection.exec("stty size; read x; stty size", pty=True, size=(91, 17)) as channel:
        assert channel.read(100) == b"17 91\r\n"
        channel.resize(99, 33)
        channel.write(b"\n")
        assert b"33 99" in everything(channel)


def test_a_connection_leaves_no_thread_behind(server: Sshd) -> None:
    before = set(threading.enumerate())
    with connect(server.target()) as connection:
        assert output(connection, "echo hi") == "hi\n"
    wait_for(lambda: set(threading.enumerate()) <= before, "end of the threads")


def test_a_closed_connection_says_so(connection: Connection) -> None:
    channel = connection.exec("cat")
    connection.close()
    with pytest.raises(ConnectionLost):
        channel.read(1)
    with pytest.raises(ConnectionLost):
        channel.write(b"x")
    with pytest.raises(ConnectionLost):
        connection.exec("true")


@root_only
def test_another_user_is_another_user(server: Sshd) -> None:
    with connect(server.target("alice")) as connection:
        assert output(connection, "id -un; echo $HOME") == f"alice\n{server.home('alice')}\n"


# -- several addresses


def test_the_next_address_is_taken_where_one_does_not_answer(server: Sshd) -> None:
    way = server.target()
    with connect(server.target(port=refused_port(), others=(way,))) as connection:
        assert connection.target == way


def test_no_address_that_answers_is_told_with_each_reason(server: Sshd) -> None:
    other = server.target(address="no-such-host.invalid")
    error = fails(Unreachable, server.target(port=refused_port(), others=(other,)))
    assert error.message.startswith("none of its 2 addresses works: 127.0.0.1 port ")
    assert "no-such-host.invalid" in error.message


def test_another_machine_at_a_second_address_is_refused(server: Sshd, tmp_path: Path) -> None:
    with Sshd() as stranger:
        known_hosts_file = tmp_path / "known"
        ways = (refused_port(), stranger.port)
        known_hosts_file.write_text(
            f"[127.0.0.1]:{ways[0]} " + server.host_keys[0].with_suffix(".pub").read_text()
        )
        second = server.target(port=stranger.port, known_hosts=(str(known_hosts_file),))
        target = server.target(port=ways[0], known_hosts=(str(known_hosts_file),), others=(second,))
        assert "has changed" in fails(UntrustedHostKey, target, ask=Person("yes")).message


def test_an_accepted_key_holds_for_all_addresses(server: Sshd, tmp_path: Path) -> None:
    known_hosts_file = tmp_path / "known"
    port = refused_port()
    way = server.target(known_hosts=(str(known_hosts_file),))
    first = server.target(port=port, known_hosts=(str(known_hosts_file),), others=(way,))
    connect(first, ask=Person("yes")).close()
    assert (
        known_hosts_file.read_text().split()[0] == f"[127.0.0.1]:{server.port},[127.0.0.1]:{port}"
    )


# -- jump hosts and proxy commands


@pytest.fixture(scope="module")
def bastion() -> Iterator[Sshd]:
    with Sshd() as bastion_server:
        yield bastion_server


def test_two_jump_hosts_lead_to_a_host_each_with_its_own_key(server: Sshd, bastion: Sshd) -> None:
    data = os.urandom(4 * MIB)
    with Sshd() as second:
        jumps = (bastion.target(name="bastion"), second.target(name="second"))
        with connect(server.target(jumps=jumps)) as connection:
            with connection.exec("sha256sum; head -c 4194304 /dev/zero") as channel:
                channel.write(data)
                channel.close_stdin()
                output = everything(channel)
            assert output.startswith(hashlib.sha256(data).hexdigest().encode())
            assert len(output) > 4 * MIB


def test_errors_of_a_jump_host_are_told_as_its_own(
    server: Sshd, bastion: Sshd, tmp_path: Path
) -> None:
    unknown = bastion.target(name="bastion", known_hosts=(str(tmp_path / "known"),))
    error = fails(UntrustedHostKey, server.target(jumps=(unknown,)))
    assert error.message.startswith("jump host `bastion`: its host key is not known")
    keyless = bastion.target(name="bastion", identities=())
    assert fails(LoginFailed, server.target(jumps=(keyless,))).message.startswith("jump host `bas")
    jump = bastion.target(name="bastion")
    error = fails(Unreachable, server.target(port=refused_port(), jumps=(jump,)))
    assert "jump host `bastion` opens no connection to 127.0.0.1" in error.message
    assert error.message.endswith("Connect failed")  # OpenSSH tells no more
    with Sshd({"AllowTcpForwarding": "no"}) as closed:
        jump = closed.target(name="closed")
        error = fails(Unreachable, server.target(jumps=(jump,)))
        assert "prohibited" in error.message
        assert "AllowTcpForwarding" in str(error.hint)


def test_a_lost_jump_host_is_a_lost_connection(server: Sshd, bastion: Sshd) -> None:
    with Faults(bastion.address, bastion.port) as faults:
        jump = through(bastion, faults, name="bastion")
        with connect(server.target(jumps=(jump,))) as connection, connection.exec("cat") as channel:
            faults.reset()
            with pytest.raises(ConnectionLost, match="connection to box was lost"):
                channel.read(1)


def test_a_stalled_jump_host_is_noticed(server: Sshd, bastion: Sshd) -> None:
    with Faults(bastion.address, bastion.port) as faults:
        jump = through(bastion, faults, name="bastion")
        target = server.target(jumps=(jump,), alive_interval=0.4, alive_count=2)
        with connect(target) as connection, connection.exec("cat >/dev/null") as channel:
            faults.stall()
            with pytest.raises(ConnectionLost, match="no answer for"):
                upload(channel)


def relay(server: Sshd) -> str:
    return " ".join(
        ["ssh", *server.options(), "-W", f"{server.address}:{server.port}", server.address]
    )


def test_a_proxy_command_leads_to_a_host(server: Sshd) -> None:
    data = os.urandom(4 * MIB)
    with connect(server.target(proxy_command=relay(server))) as connection:
        with connection.exec("sha256sum; head -c 4194304 /dev/zero") as channel:
            channel.write(data)
            channel.close_stdin()
            output = everything(channel)
        assert output.startswith(hashlib.sha256(data).hexdigest().encode())
        assert len(output) > 4 * MIB


def test_a_proxy_command_ends_with_the_connection(server: Sshd) -> None:
    before = children()
    connection = connect(server.target(proxy_command=relay(server)))
    assert children() - before
    connection.close()
    wait_for(lambda: not children() - before, "end of the proxy command")


def children() -> set[str]:
    """Return the processes that this one has started and that run or wait to be reaped."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_a_proxy_command_that_fails_is_told_with_its_words(server: Sshd) -> None:
    messages: list[str] = []
    target = server.target(proxy_command="sh -c 'echo cannot find the way >&2; exit 3'")
    error = fails(Unreachable, target, notify=messages.append)
    assert "opened no connection (exit code 3): cannot find the way" in error.message
    assert messages == ["cannot find the way"]


# -- what can be wrong with a network


def test_a_name_that_nobody_knows_is_told(server: Sshd) -> None:
    error = fails(Unreachable, server.target(address="no-such-host.invalid"))
    assert "`no-such-host.invalid` (its address)" in error.message


def test_a_refused_connection_is_told(server: Sshd) -> None:
    error = fails(Unreachable, server.target(port=refused_port()))
    assert "refuses connections" in error.message
    assert "is sshd running" in str(error.hint)


def test_no_answer_is_told(server: Sshd) -> None:
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(2):  # more than it takes: the next one gets no answer
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        target = server.target(port=full.getsockname()[1], connect_timeout=0.3)
        error = fails(Unreachable, target)
    assert "does not answer (tried for 0.3 s)" in error.message
    assert "VPN" in str(error.hint)


def answering(words: bytes) -> contextlib.AbstractContextManager[int]:
    """Serve one connection with some words."""

    @contextlib.contextmanager
    def serve() -> Iterator[int]:
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def answer() -> None:
                client, _ = listener.accept()
                with client:
                    client.sendall(words)
                    while client.recv(4096):
                        pass

            thread = threading.Thread(target=answer, daemon=True)
            thread.start()
            yield listener.getsockname()[1]
            thread.join(20)

    return serve()


def test_a_server_that_speaks_another_protocol_is_told(server: Sshd) -> None:
    with answering(b"220 mail.example ESMTP\x1b[31m\r\n" * 101) as port:
        error = fails(Unreachable, server.target(port=port))
    assert "is not an SSH server: it answered '220 mail.example ESMTP\\x1b[31m'" in error.message


def test_a_server_that_shares_no_method_is_told() -> None:
    with Sshd({"Ciphers": "chacha20-poly1305@openssh.com"}) as server:
        error = fails(NoCommonAlgorithm, server.target())
    assert "the SSH handshake with 127.0.0.1 port" in error.message
    assert "transport: ssh" in str(error.hint)


def test_a_server_that_says_nothing_is_told(
    server: Sshd, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "GREETING_TIMEOUT", 1.2)
    faults.stall(DOWN)
    error = fails(Unreachable, through(server, faults))
    assert "did not finish its greeting in 1.2 s" in error.message


def test_a_server_that_stops_in_the_handshake_is_told(
    server: Sshd, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "GREETING_TIMEOUT", 1.0)
    monkeypatch.setattr(handshake, "KEY_EXCHANGE_TIMEOUT", 0.5)
    faults.stall(UP)
    error = fails(Unreachable, through(server, faults))
    assert "did not finish the key exchange in 0.5 s" in error.message
    assert "MTU" in str(error.hint)


def test_a_server_that_hangs_up_at_once_is_tried_again(
    server: Sshd, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "RETRY_DELAYS", (0.01, 0.02, 0.04))
    messages: list[str] = []
    faults.hang_up(3)
    connect(through(server, faults), notify=messages.append).close()
    assert faults.accepted == 4
    assert len(messages) == 3
    for word in ("sshd restarting", "MaxStartups", "fail2ban", "attempt 2 of 4"):
        assert word in messages[0]
    faults.hang_up(100)
    error = fails(Unreachable, through(server, faults))
    assert faults.accepted == 8
    assert "closed it before the SSH handshake, 4 times" in error.message
    for word in ("restarting", "MaxStartups", "fail2ban"):
        assert word in str(error.hint)


def test_a_server_with_too_many_logins_is_waited_for() -> None:
    with Sshd({"MaxStartups": "1:100:1"}) as server, contextlib.ExitStack() as stack:
        other = stack.enter_context(socket.create_connection((server.address, server.port)))
        assert other.recv(100).startswith(b"SSH-")

        def notify(line: str) -> None:
            assert "MaxStartups" in line
            other.close()

        connect(server.target(), notify=notify).close()
        assert "drop connection" in server.log()


def test_a_server_with_too_many_logins_for_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_DELAYS", (0.01, 0.02, 0.04))
    with Sshd({"MaxStartups": "1:100:1"}) as server:
        with socket.create_connection((server.address, server.port)) as other:
            assert other.recv(100).startswith(b"SSH-")
            error = fails(Unreachable, server.target())
        assert "4 times" in error.message
        for word in ("restarting", "MaxStartups", "fail2ban"):
            assert word in str(error.hint)


def test_a_restarting_server_is_back_for_the_next_command() -> None:
    with Sshd() as own:
        connection = connect(own.target())
        channel = connection.exec("cat")
        own.restart()
        if ROOT:
            with pytest.raises(ConnectionLost):
                channel.read(1)
        connection.close()
        connect(own.target()).close()


def test_the_process_ends_soon_after_a_failed_handshake() -> None:
    program = (
        "import sys; from safelaunch.ssh.connection import connect;"
        "from safelaunch.ssh.config.target import Target\n"
        "try: connect(Target('box', '127.0.0.1', int(sys.argv[1]), 'me', (), agent=None))\n"
        "except Exception as e: print(type(e).__name__)"
    )
    root = REPOSITORY
    with Sshd({"Ciphers": "chacha20-poly1305@openssh.com"}) as old:
        result = subprocess.run(
            [sys.executable, "-c", program, str(old.port)],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=True,
        )
    assert (result.stdout, result.stderr) == ("NoCommonAlgorithm\n", "")


# -- a connection that is lost


def test_a_reset_while_reading_is_told_at_once(server: Sshd, faults: Faults) -> None:
    target = through(server, faults)
    with connect(target) as connection, connection.exec("echo first; cat") as channel:
        assert channel.read(100) == b"first\n"
        faults.reset()
        with pytest.raises(ConnectionLost, match="connection to box was lost: "):
            channel.read(1)
        with pytest.raises(ConnectionLost):
            channel.exit_code(20)
        assert not connection.alive


def test_a_server_that_goes_down_is_told_at_once(server: Sshd, faults: Faults) -> None:
    with connect(through(server, faults)) as connection, connection.exec("cat") as channel:
        faults.drop()
        with pytest.raises(ConnectionLost, match="closed by the other side"):
            channel.read(1)


def test_a_reset_while_writing_is_told_at_once(server: Sshd, faults: Faults) -> None:
    target = through(server, faults)
    with connect(target) as connection, connection.exec("cat >/dev/null") as channel:
        faults.cut_after(3 * MIB, UP)
        with pytest.raises(ConnectionLost):
            upload(channel)


@pytest.mark.parametrize("writing", [False, True], ids=["reading", "writing"])
def test_silence_is_noticed_by_asking_for_a_sign_of_life(
    server: Sshd, faults: Faults, writing: bool
) -> None:
    target = through(server, faults, alive_interval=0.4, alive_count=2)
    start = time.monotonic()
    with connect(target) as connection, connection.exec("cat >/dev/null") as channel:
        faults.stall()
        with pytest.raises(ConnectionLost, match="no answer for"):
            upload(channel) if writing else channel.read(1)
        assert 1.2 < time.monotonic() - start < DEADLINE


def test_a_quiet_connection_that_lives_is_kept(server: Sshd, faults: Faults) -> None:
    target = through(server, faults, alive_interval=0.25, alive_count=11)
    with connect(target) as connection, connection.exec("cat") as channel:
        passed = faults.passed[DOWN]
        faults.wait(passed + 600, DOWN)  # 12 answers and more: longer than it may be silent
        channel.write(b"alive")
        assert channel.read(5) == b"alive"


@pytest.mark.parametrize("direction", [UP, DOWN])
@pytest.mark.parametrize("count", [1, 20, 40, 1000, 1700, 2400, 2800, 3200, 3500])
def test_a_cut_anywhere_in_the_login_is_an_error_of_ours(
    server: Sshd, faults: Faults, count: int, direction: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "RETRY_DELAYS", (0.01,))
    faults.cut_after(count, direction)
    before = ours()
    with (
        contextlib.suppress(Unreachable, ConnectionLost),
        connect(through(server, faults)) as connection,
        connection.exec("cat") as channel,
    ):
        channel.close_stdin()
        assert everything(channel) == b""
    faults.heal()
    wait_for(lambda: not ours() - before, "end of the threads")
    connect(through(server, faults)).close()


# -- accounts that cannot be used


@root_only
@pytest.mark.parametrize(
    ("shell", "message"), [("/usr/sbin/nologin", "has no shell"), ("/bin/false", "/bin/false")]
)
def test_an_account_without_a_shell_is_told(shell: str, message: str) -> None:
    with (
        Sshd(shells={"alice": shell}) as server,
        connect(server.target("alice")) as connection,
        connection.exec("echo READY; cat") as channel,
    ):
        out = everything(channel)
        code = channel.exit_code(20)
        error = errors.command_failed("box", out, channel.stderr_tail(), code)
    assert isinstance(error, NoCommandSession)
    assert message in f"{error.message} {error.hint}"


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        ("bash: line 1: python3: command not found\n", "no python3 on the PATH"),
        ("sh: 1: python3: not found\n", "no python3 on the PATH"),
        (
            "mkdir: cannot create directory 'x': No space left on device\n",
            "the disk of the host is full",
        ),
        ("mkdir: cannot create directory '.safelaunch': Permission denied\n", "is not writable"),
        ("touch: Read-only file system\n", "is not writable"),
        ("Segmentation fault\n", "exit code 3 before it answered: Segmentation fault"),
    ],
)
def test_what_ends_a_command_before_it_answers_is_told(
    connection: Connection, stderr: str, message: str
) -> None:
    with connection.exec("cat >&2; exit 3") as channel:
        channel.write(stderr.encode())
        channel.close_stdin()
        out = everything(channel)
        error = errors.command_failed("box", out, channel.stderr_tail(), channel.exit_code(20))
    assert message in error.message
    assert error.hint


def test_a_server_without_sessions_is_told() -> None:
    with Sshd({"MaxSessions": "0"}) as server, connect(server.target()) as connection:
        with pytest.raises(NoCommandSession, match="refused to open a session") as caught:
            connection.exec("true")
        assert "MaxSessions" in str(caught.value.hint)
        assert connection.alive


def test_a_user_whom_the_server_denies_is_told() -> None:
    with Sshd({"DenyUsers": "*"}) as server:
        error = fails(LoginFailed, server.target())
    assert "login failed for" in error.message


def test_what_a_server_says_before_the_login_is_told_where_it_fails(tmp_path: Path) -> None:
    banner = tmp_path / "banner"
    banner.write_text("Only for\nmembers \x1b[31mof the lab\n")
    with Sshd({"Banner": str(banner)}) as server:
        error = fails(LoginFailed, server.target(identities=()))
    assert "its message: Only for members \\x1b[31mof the lab" in error.message
