"""A real OpenSSH server on loopback: keys, users and configuration of its own, no trace on the box.

Where root runs it, it has mount and process namespaces of its own: a machine apart, with users from
a passwd file that only it sees (`alice` has no privileges) and homes in its folder; all that was
started on it ends with it. Elsewhere it serves the user who runs it, with HOME in its folder.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbum import local

from safelaunch.ssh.config.target import Target
from support.sweeper import start_of, sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from typing_extensions import Self

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
PASSWORD = "correct horse"  # noqa: S105 - of a server that nobody else reaches
# of PASSWORD, by `openssl passwd -6`: Python 3.13 has no crypt
HASHED = (
    "$6$safelaunch$Fq2vJfWlisFlKq1K5vIj3kh6X2rf4pt944D3bWIfTJ1Rf8opU/qxeJH3XAknd7XFortjJKDC"
    "Wky.mZp3X0i0d/"
)
ALICE = 61184
MODULES = ("auth required pam_unix.so", "account required pam_permit.so")
DEADLINE = 60.0


def missing() -> str | None:
    """Return why no server can be started here, if so."""
    if SSHD is None:
        return "no sshd here: install openssh-server"
    if shutil.which("ssh-keygen") is None:
        return "no ssh-keygen here: install openssh-client"
    return None


def keygen(path: Path, kind: str = "ed25519", *words: str, passphrase: str = "") -> Path:
    """Make a key pair, and return the path of its private half."""
    # every sshd takes so long a one; ssh-keygen needs a second for the 3072 bits of its own choice
    size = ("-b", "2048") if kind == "rsa" else ()
    local["ssh-keygen"]("-q", "-t", kind, *size, "-N", passphrase, "-f", path, *words)
    return path


class Sshd:
    """A server that runs until `close`. `config` adds to its sshd_config and wins over ours."""

    def __init__(
        self,
        config: Mapping[str, str | Sequence[str]] | None = None,
        *,
        shells: Mapping[str, str] | None = None,
        pam: Sequence[str] | None = None,
        host_keys: Sequence[str] = ("ed25519",),
        address: str = "127.0.0.1",
        port: int | None = None,
        before: Sequence[str] = (),
        own_pids: bool = True,
    ) -> None:
        """`shells` are the users' (root, alice); `before` are words such as `ip netns exec n1`.

        `own_pids`: whether root gives it a pid namespace, as another machine has one.
        """
        # not below pytest's folder: nobody but its owner may enter that one
        self.folder = Path(tempfile.mkdtemp(prefix="sshd-"))
        self.folder.chmod(0o711)
        self._removed = sweep("folder", str(self.folder))
        self._ended: Callable[[], None] | None = None
        self.address = address
        self.user = "root" if ROOT else pwd.getpwuid(os.geteuid()).pw_name
        self.users = ("root", "alice") if ROOT else (self.user,)
        self.key = keygen(self.folder / "id_ed25519")
        self.known_hosts = self.folder / "known_hosts"
        self.host_keys = [keygen(self.folder / f"host_{kind}", kind) for kind in host_keys]
        self._config = dict(config or {})
        self._shells = dict(shells or {})
        self._pam = pam
        self._before = tuple(before)
        self._own_pids = own_pids
        self._process: subprocess.Popen[bytes] | None = None
        for user in self.users:
            self._home(user)
        self.port = self._start(port)
        self.trust()

    # -- what tests use

    def home(self, user: str | None = None) -> Path:
        """Return a user's home; the path is the same on the server and outside."""
        return self.folder / "home" / (user or self.user)

    def authorize(self, public_key: str, user: str | None = None) -> None:
        """Let a key in."""
        path = self.home(user) / ".ssh" / "authorized_keys"
        with path.open("a") as file:
            file.write(public_key.strip() + "\n")

    def trust(self) -> None:
        """Write the server's host keys into its own known_hosts file, which `target` names."""
        name = f"[{self.address}]:{self.port}"
        keys = [key.with_suffix(".pub").read_text() for key in self.host_keys]
        self.known_hosts.write_text("".join(f"{name} {key}" for key in keys))

    def target(self, user: str | None = None, /, **changes: Any) -> Target:
        """Return how to reach it with its own key."""
        defaults: dict[str, Any] = {
            "name": "box",
            "address": self.address,
            "port": self.port,
            "user": user or self.user,
            "identities": (str(self.key),),
            "identities_configured": True,
            "agent": None,
            "known_hosts": (str(self.known_hosts),),
        }
        return Target(**{**defaults, **changes})

    def options(self) -> list[str]:
        """Return the options with which OpenSSH's own programs (ssh, scp, rsync -e) reach it."""
        settings = {
            "Port": self.port,
            "IdentityFile": self.key,
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.known_hosts,
            "BatchMode": "yes",
            "LogLevel": "ERROR",
        }
        words = ["-F", "none"]
        for name, value in settings.items():
            words += ["-o", f"{name}={value}"]
        return words

    def ssh_config(self, alias: str, user: str | None = None) -> str:
        """Return a block for ~/.ssh/config that reaches it as `alias`."""
        return (
            f"Host {alias}\n  HostName {self.address}\n  Port {self.port}\n"
            f"  User {user or self.user}\n  IdentityFile {self.key}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.known_hosts}\n"
        )

    def run(self, command: str, user: str | None = None) -> str:
        """Run a command there with OpenSSH's own client and return what it prints."""
        words = [*self.options(), f"{user or self.user}@{self.address}", command]
        return str(local["ssh"](*words, timeout=60))

    def log(self) -> str:
        """Return what the server has logged."""
        path = self.folder / "sshd.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def processes(self) -> list[str]:
        """Return the command lines of what runs on it; elsewhere than by root, of its sessions."""
        return [" ".join(_line(pid)) for pid in self._pids()[1]]

    def cpu(self) -> float:
        """Return the seconds of CPU time of what runs on it, and of what has ended there."""
        ticks = 0
        for pid in itertools.chain(*self._pids()):
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/stat").read_text()
                # utime, stime, and those of children that were waited for (proc(5))
                ticks += sum(map(int, text.rpartition(")")[2].split()[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def _pids(self) -> tuple[list[int], list[int]]:
        """Return the pids of the listener, and of all that runs below it."""
        if self._process is None:
            return [], []
        children: dict[int, list[int]] = {}
        for pid, parent in running():
            children.setdefault(parent, []).append(pid)
        top = children.get(self._process.pid, []) if ROOT else [self._process.pid]
        pids = [pid for listener in top for pid in children.get(listener, ())]
        for pid in pids:
            pids += children.get(pid, ())
        return top, pids

    def stop(self) -> None:
        """End the server and all that runs on it (where root runs it); its files stay."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if self._ended is not None:
            self._ended()

    def restart(self, config: Mapping[str, str | Sequence[str]] | None = None) -> None:
        """Start it again on its port, with other settings if some are given."""
        self.stop()
        if config is not None:
            self._config = dict(config)
        self._start(self.port)

    def close(self) -> None:
        """End the server and remove its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._removed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- how it starts

    def _home(self, user: str) -> None:
        keys = self.home(user) / ".ssh"
        keys.mkdir(parents=True)
        self.home(user).chmod(0o755)
        keys.chmod(0o700)
        self.authorize(self.key.with_suffix(".pub").read_text(), user)
        (keys / "authorized_keys").chmod(0o600)
        if user == "alice":
            for path in (self.home(user), keys, keys / "authorized_keys"):
                os.chown(path, ALICE, ALICE)

    def _start(self, fixed: int | None) -> int:
        deadline = time.monotonic() + DEADLINE
        while True:
            port = fixed or _free_port(self.address if not self._before else "127.0.0.1")
            self._write(port)
            start = len(self.log())
            with (self.folder / "sshd.log").open("ab") as log:
                self._process = subprocess.Popen(
                    [*self._before, *self._command()],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self._ended = sweep("group", str(self._process.pid), start_of(self._process.pid))
            if self._listens(port, deadline, start):
                return port
            self.stop()
            text = self.log()
            if "in use" not in text[start:] or time.monotonic() > deadline:
                self.close()
                raise RuntimeError(f"sshd did not start:\n{text}")

    def _listens(self, port: int, deadline: float, start: int) -> bool:
        line = f"Server listening on {self.address} port {port}."
        while self._process is not None and self._process.poll() is None:
            if line in self.log()[start:] or time.monotonic() > deadline:
                return line in self.log()[start:]
            time.sleep(0.005)
        return False

    def _write(self, port: int) -> None:
        settings: dict[str, str | Sequence[str]] = {
            "Port": str(port),
            "ListenAddress": self.address,
            "HostKey": [str(path) for path in self.host_keys],
            "PidFile": "none",
            "AuthorizedKeysFile": ".ssh/authorized_keys",
            "PermitRootLogin": "yes",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "UsePAM": "no",
            "UseDNS": "no",
            "PrintMotd": "no",
            "LogLevel": "VERBOSE",
            "MaxStartups": "100",
            "Subsystem": "sftp internal-sftp",
        }
        if _version() >= (9, 8):  # would make a client that was cut off often wait
            settings["PerSourcePenalties"] = "no"
        if not ROOT:
            settings["SetEnv"] = f"HOME={self.home()}"
            settings["AuthorizedKeysFile"] = str(self.home() / ".ssh" / "authorized_keys")
            settings["StrictModes"] = "no"  # the server's own folder lies in a world-writable one
        settings |= self._config
        lines = []
        for name, value in settings.items():
            lines += [f"{name} {v}" for v in ([value] if isinstance(value, str) else value)]
        (self.folder / "sshd_config").write_text("\n".join(lines) + "\n")

    def _command(self) -> list[str]:
        server = [str(SSHD), "-D", "-e", "-f", str(self.folder / "sshd_config")]
        if not ROOT:
            return server
        mounts = ["mount -t tmpfs tmpfs /run && mkdir /run/sshd"]
        for name, text in self._users().items():
            path = self.folder / name
            path.write_text(text)
            path.chmod(0o600 if name == "shadow" else 0o644)
            mounts.append(f"mount --bind {path} /etc/{name}")
        if self._pam is not None:
            modules = self.folder / "pam.d"
            modules.mkdir(exist_ok=True)
            (modules / "sshd").write_text("\n".join(self._pam) + "\n")
            mounts.append(f"mount --bind {modules} /etc/pam.d")
        script = " && ".join([*mounts, f"exec {shlex.join(server)}"])
        namespaces = ["--mount", "--fork", "--kill-child"]
        namespaces += ["--pid", "--mount-proc"] if self._own_pids else []
        return ["unshare", *namespaces, "sh", "-c", script]

    def _users(self) -> dict[str, str]:
        """Return the text of passwd, group and shadow: the machine's own, root's home, alice."""
        others = [u for u in pwd.getpwall() if u.pw_name not in self.users]
        lines = [f"{u.pw_name}:x:{u.pw_uid}:{u.pw_gid}::{u.pw_dir}:{u.pw_shell}" for u in others]
        for user, number in (("root", 0), ("alice", ALICE)):
            shell = self._shells.get(user, "/bin/bash")
            lines.append(f"{user}:x:{number}:{number}::{self.home(user)}:{shell}")
        groups = Path("/etc/group").read_text() + f"alice:x:{ALICE}:\n"
        shadow = "".join(f"{user}:{HASHED}:19000:0:99999:7:::\n" for user in self.users)
        return {"passwd": "\n".join(lines) + "\n", "group": groups, "shadow": shadow}


def running() -> Iterator[tuple[int, int]]:
    """Yield pid and parent of each process that is no zombie."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            state, parent = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                yield int(name), int(parent)


def _line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []


def _version() -> tuple[int, ...]:
    # the client's, which comes from the same release: not every sshd can say it
    _, _, text = local["ssh"]["-V"].run()
    match = re.search(r"OpenSSH\D*(\d+)\.(\d+)", text)
    return tuple(map(int, match.groups())) if match else (0,)


def _free_port(address: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def agent(folder: Path, *keys: Path) -> Iterator[str]:
    """Yield the socket of an ssh-agent that holds the keys."""
    path = str(folder / "agent.sock")
    process = subprocess.Popen(
        ["ssh-agent", "-D", "-a", path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    ended = sweep("group", str(process.pid), start_of(process.pid))
    environment = {**os.environ, "SSH_AUTH_SOCK": path}

    def ssh_add(*words: str) -> int:
        command = ["ssh-add", *words]
        return subprocess.run(command, check=False, env=environment, capture_output=True).returncode

    try:
        deadline = time.monotonic() + DEADLINE
        # its socket is there before it listens; -l ends with 1 where it answers and holds nothing
        while ssh_add("-l") != 1:
            assert time.monotonic() < deadline, "ssh-agent did not start"
            time.sleep(0.005)
        for key in keys:
            assert ssh_add("-q", str(key)) == 0, f"ssh-agent refuses {key}"
        yield path
    finally:
        process.terminate()
        process.wait()
        ended()
