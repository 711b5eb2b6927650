"""Several machines on one network, each a network namespace with a real sshd in it.

They see each other, and this machine sees them, through a bridge; all ends with `close`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from plumbum import ProcessExecutionError, local

from support.ssh.sshd import ROOT, Sshd, missing
from support.sweeper import sweep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

CARD = "lan0"
_COUNT = itertools.count()


def why_not() -> str | None:
    """Return why no such network can be made here, if so."""
    if missing() is not None:
        return missing()
    if not ROOT:
        return "needs root: it makes network namespaces"
    if shutil.which("ip") is None:
        return "no `ip` here: install iproute2"
    try:
        with Lan(0):
            return None
    except ProcessExecutionError as e:
        return f"no network namespaces here: {' '.join(e.stderr.split())}"


class Lan:
    """A network of machines: `hosts` are their servers, `names` what ssh_config calls them."""

    def __init__(self, count: int, user: str | None = "alice") -> None:
        # of its own: what a namespace held goes away some time after it
        number, mine = os.getpid() % 0x10000, next(_COUNT) % 0x100
        self._own = f"{number:04x}{mine:02x}"
        self._net = f"10.{100 + number % 100}.{(number // 100 + mine) % 256}"
        self._bridge = f"slb{self._own}"
        self._names = [f"sl{self._own}n{index}" for index in range(1, count + 1)]
        self.hosts: list[Sshd] = []
        self.names = [f"gpu{index}" for index in range(1, count + 1)]
        self.user = user
        self._folder = Path(tempfile.mkdtemp(prefix="safelaunch-lan-"))
        self._cleanups = [sweep("folder", str(self._folder))]
        try:
            self._make()
            for index, name in enumerate(self._names, 1):
                before = ("ip", "netns", "exec", name, *self._without_dns())
                self.hosts.append(Sshd(before=before, address=self.address(index)))
        except BaseException:
            self.close()
            raise

    def address(self, number: int) -> str:
        """Return the address of a machine, counted from 1."""
        return f"{self._net}.{number}"

    def _without_dns(self) -> list[str]:
        """Return words before a command: it knows the machines, and asks nobody for names."""
        own = [f"{self.address(n)} {name}" for n, name in enumerate(self.names, 1)]
        hosts = self._folder / "hosts"
        hosts.write_text(
            "\n".join(["127.0.0.1 localhost", f"{self.address(254)} laptop", *own, ""])
        )
        sources = self._folder / "nsswitch.conf"
        sources.write_text("passwd: files\ngroup: files\nshadow: files\nhosts: files\n")
        mounts = [f"mount --bind {path} /etc/{path.name}" for path in (hosts, sources)]
        script = " && ".join([*mounts, 'exec "$@"'])
        return ["unshare", "--mount", "sh", "-c", script, "sh"]

    def _make(self) -> None:
        self._cleanups.append(sweep("command", "ip", "link", "del", self._bridge))
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self._net}.254/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for index, name in enumerate(self._names, 1):
            # this removes both ends of veth as well
            self._cleanups.append(sweep("command", "ip", "netns", "del", name))
            _ip("netns", "add", name)
            link = f"slv{self._own}{index}"
            _ip("link", "add", link, "type", "veth", "peer", "name", CARD, "netns", name)
            _ip("link", "set", link, "master", self._bridge, "up")
            _ip("-n", name, "addr", "add", f"{self.address(index)}/24", "dev", CARD)
            _ip("-n", name, "link", "set", CARD, "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def ssh_config(self) -> str:
        """Return what ~/.ssh/config has to say."""
        pairs = zip(self.names, self.hosts, strict=True)
        return "\n".join(host.ssh_config(name, self.user) for name, host in pairs)

    def inside(self, number: int, *words: str) -> str:
        """Run a command in a machine's network, and return what it prints."""
        return _ip("netns", "exec", self._names[number - 1], *words)

    def cut(self, number: int) -> None:
        """Pull the plug of a machine's network: nothing is refused, all is silent."""
        _ip("link", "set", f"slv{self._own}{number}", "down")

    def close(self) -> None:
        """End all machines and remove the network."""
        for host in self.hosts:
            host.close()
        for index, name in enumerate(self._names, 1):
            for words in (("link", "del", f"slv{self._own}{index}"), ("netns", "del", name)):
                with contextlib.suppress(ProcessExecutionError):
                    _ip(*words)
        with contextlib.suppress(ProcessExecutionError):
            _ip("link", "del", self._bridge)
        shutil.rmtree(self._folder, ignore_errors=True)
        for clean_up in self._cleanups:
            clean_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ip(*words: str) -> str:
    return str(local["ip"](*words))


@contextlib.contextmanager
def lan(count: int) -> Iterator[Lan]:
    """Yield a network of so many machines."""
    with Lan(count) as network:
        yield network
