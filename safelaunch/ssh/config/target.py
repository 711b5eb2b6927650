"""From a name and what the hosts file says of it to a Target: how a machine is reached.

The hosts file wins over ~/.ssh/config, that one over the system's. Reads these ssh_config files
and nothing else: connects to nothing, asks nobody, looks up no name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import ConfigError
from safelaunch.ssh.config import reader as ssh_config
from safelaunch.ssh.config import values
from safelaunch.ssh.config.address import Place, place
from safelaunch.ssh.config.tokens import Unset, file_name, home, tokens

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.model import Host
    from safelaunch.ssh.config.lines import Line
    from safelaunch.ssh.config.local_user import Local
    from safelaunch.ssh.config.reader import Options

# IdentityAgent's own word for "the socket that SSH_AUTH_SOCK names"; on Windows the usual pipe
USUAL_AGENT = "SSH_AUTH_SOCK"
_MAX_HOPS = 16
_IDENTITIES = ("id_ed25519", "id_ecdsa", "id_rsa")  # of those that OpenSSH tries


@dataclass(frozen=True, slots=True)
class Target:
    """One way to a machine. Paths are this machine's, `~` and tokens expanded.

    `jumps` lead to it, the first to connect to first; they have none of their own, and only the
    first can have a proxy command. `others` are further ways to the same machine, to be tried in
    order: its host key must be the same on each.
    """

    name: str  # as the user calls it
    address: str
    port: int
    user: str
    identities: tuple[str, ...]  # key files in order
    identities_given: bool = False  # else the usual files, most of which need not exist
    identities_only: bool = False  # keys of the agent that are not among them are not offered
    certificates: tuple[str, ...] = ()
    agent: str | None = USUAL_AGENT  # None: none is asked; else USUAL_AGENT or a socket's path
    jumps: tuple[Target, ...] = ()
    proxy_command: str | None = None  # for a shell on this machine, tokens expanded
    host_key_alias: str | None = None  # the name to look for in known_hosts, instead of address
    known_hosts: tuple[str, ...] = ()  # the user's; new keys go into the first
    system_known_hosts: tuple[str, ...] = ()
    strict: str = "ask"  # StrictHostKeyChecking: ask, yes, no, accept-new
    family: str = "any"  # any, inet, inet6
    connect_timeout: float | None = None  # seconds
    alive_interval: float | None = None  # seconds, 0: off; None: the files say nothing
    alive_count: int | None = None
    authentications: tuple[str, ...] = values.METHODS
    notes: tuple[str, ...] = ()  # what of the files is not followed: for a failed login
    others: tuple[Target, ...] = ()


class _Wish(NamedTuple):
    """One machine to be looked up: what goes before the files, and what led here."""

    name: str
    place: Place
    identity: str | None = None
    via: str | None = None  # ProxyJump that goes before the files' own
    via_where: str | None = None  # the line that says it
    hops: int = 0


def target(name: str, host: Host | None, local: Local, *, config: str | None = None) -> Target:
    """Return how the machine is reached that the user calls `name`.

    `host` is its entry in the hosts file, if it has one; `config` goes before the user's and the
    system's ssh_config, as with `ssh -F`. Raises ConfigError with file and line.
    """
    if host is None:
        return _way(_Wish(name, place(name)), local, config)
    ways = []
    for text in host.addresses or (host.ssh or name,):
        at = place(text, name)
        at = at._replace(user=at.user or host.user, port=at.port or host.port)
        ways.append(_way(_Wish(name, at, host.identity), local, config))
    return replace(ways[0], others=tuple(ways[1:]))


def _way(wish: _Wish, local: Local, config: str | None) -> Target:
    at = wish.place
    options = ssh_config.options_of(at.host, local, config=config, user=at.user)
    address = ssh_config.host_name(options)
    port = at.port or values.port(options)
    user = at.user or values.word(options, "user") or local.user
    alias = (values.word(options, "hostkeyalias") or "").lower() or None
    known = {"h": address, "n": at.host, "p": str(port), "r": user}
    files = _Files(options, local, _file_tokens(known, local, alias))
    jumps, command = _proxies(options, wish, local, config, known)
    given = [] if wish.identity is None else [home(wish.identity, local)]
    identities = [*given, *files.of_lines("identityfile")]
    usual = [str(local.path.join(local.ssh_folder, file)) for file in _IDENTITIES]
    is_given = bool(given or options.lines("identityfile"))
    values.note_what_is_not_followed(options)
    return Target(
        name=wish.name,
        address=address,
        port=port,
        user=user,
        identities=tuple(dict.fromkeys(identities if is_given else usual)),
        identities_given=is_given,
        # many keys of an agent would use up the server's patience before the one that is named
        identities_only=bool(given) or values.is_on(options, "identitiesonly"),
        certificates=tuple(dict.fromkeys(files.of_lines("certificatefile"))),
        agent=files.agent(),
        jumps=jumps,
        proxy_command=command,
        host_key_alias=alias,
        known_hosts=files.several("userknownhostsfile", _user_files(local)),
        system_known_hosts=files.several("globalknownhostsfile", _system_files(local)),
        strict=values.strictness(options),
        family=values.choice(options, "addressfamily", ("any", "inet", "inet6")),
        connect_timeout=values.span(options, "connecttimeout"),
        alive_interval=values.span(options, "serveraliveinterval"),
        alive_count=values.count(options, "serveralivecountmax"),
        authentications=values.authentications(options),
        notes=tuple(options.notes),
    )


def _file_tokens(known: dict[str, str], local: Local, alias: str | None) -> dict[str, str]:
    return {
        **known,
        "d": local.home,
        "i": local.uid,
        "k": alias or known["n"],
        "L": local.hostname.split(".")[0],
        "l": local.hostname,
        "u": local.user,
    }


class _Files(NamedTuple):
    """Settings that name files."""

    options: Options
    local: Local
    known: dict[str, str]

    def of_lines(self, keyword: str) -> list[str]:
        """Return the files of a setting whose lines add up."""
        lines = self.options.lines(keyword)
        return self._expanded((line.word(), line) for line in lines)

    def several(self, keyword: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Return the files of a setting that names several in one line."""
        line = self.options.line(keyword)
        if line is None:
            return default
        return tuple(self._expanded((word, line) for word in line.words()))

    def agent(self) -> str | None:
        """Return the socket of the agent, USUAL_AGENT, or None where none is to be asked."""
        line = self.options.line("identityagent")
        word = USUAL_AGENT if line is None else line.word()
        if line is None or word == USUAL_AGENT:
            return USUAL_AGENT
        if re.fullmatch(r"\$[A-Za-z0-9_]+", word):
            return self.local.environ.get(word[1:]) or None
        found = self._expanded([(word, line)])
        return found[0] if found else None

    def _expanded(self, words: Iterable[tuple[str, Line]]) -> list[str]:
        found = []
        for word, line in words:
            if word.lower() == "none":
                continue
            try:
                found.append(file_name(word, self.known, self.local, line.where))
            except Unset as e:
                said = f"{line.where}: `{word}` is left out, ${e} is not set"
                self.options.notes[said] = None
        return found


def _user_files(local: Local) -> tuple[str, ...]:
    names = ("known_hosts", "known_hosts2")
    return tuple(str(local.path.join(local.ssh_folder, name)) for name in names)


def _system_files(local: Local) -> tuple[str, ...]:
    names = ("ssh_known_hosts", "ssh_known_hosts2")
    return tuple(str(local.path.join(local.system_folder, name)) for name in names)


# -- the way there ---------------------------------------------------------------------------------


def _proxies(
    options: Options, wish: _Wish, local: Local, config: str | None, known: dict[str, str]
) -> tuple[tuple[Target, ...], str | None]:
    """Return the hops, and the command that makes the first connection."""
    if wish.via is not None:
        return _hops(wish.via, wish.via_where, wish, local, config), None
    jump = options.line("proxyjump")
    if jump is not None and not ssh_config.is_none(jump.text):
        text = jump.text.split("#")[0].strip().strip('"')
        return _hops(tokens(text, known, jump.where), jump.where, wish, local, config), None
    command = options.line("proxycommand")
    if command is None or command.text.lower() == "none":
        return (), None
    return (), tokens(command.text, known, command.where)


def _hops(
    text: str, where: str | None, wish: _Wish, local: Local, config: str | None
) -> tuple[Target, ...]:
    """Return the hops of a ProxyJump, the first to connect to first, and what leads to that one.

    As `ssh -J` does it: only for the first hop the files' own ProxyJump counts.
    """
    if wish.hops >= _MAX_HOPS:
        raise ConfigError(
            f"`{wish.place.host}` is reached through itself",
            where=where,
            hint="leave the jump host out of its own block: Host * !jumphost",
        )
    before, _, last = text.rpartition(",")
    at = place(last.strip(), where)
    hop = _Wish(at.host, at, via=before or None, via_where=where, hops=wish.hops + 1)
    found = _way(hop, local, config)
    return (*found.jumps, replace(found, jumps=()))
