"""Resolve a host name and its entry in the hosts file to a Target: how to connect to a machine.

The hosts file takes precedence over ~/.ssh/config, which takes precedence over the system's file.
Only reads files: connects to nothing, prompts nobody, resolves no name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.errors import ConfigError
from safelaunch.ssh.config import reader as ssh_config
from safelaunch.ssh.config import values
from safelaunch.ssh.config.address import STANDARD_PORT, Address, parse_address
from safelaunch.ssh.config.tokens import (
    UnsetVariable,
    expand_home,
    expand_path,
    expand_percent_tokens,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from safelaunch.model import Host
    from safelaunch.ssh.config.lines import ConfigLine
    from safelaunch.ssh.config.local_user import LocalUser
    from safelaunch.ssh.config.reader import Options

# IdentityAgent's keyword for the socket in SSH_AUTH_SOCK; on Windows the agent's standard pipe
DEFAULT_AGENT = "SSH_AUTH_SOCK"
ALIVE_INTERVAL = 15.0  # seconds of silence before a keepalive request
ALIVE_COUNT = 3  # unanswered keepalive requests after which a connection counts as lost
CONNECT_TIMEOUT = 15.0  # seconds for each address
PARAMIKO, OPENSSH = "paramiko", "ssh"  # values of `transport` in the hosts file
_MAX_HOPS = 16
# OpenSSH tries these and others; those of FIDO keys are for it alone
_DEFAULT_IDENTITIES = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")


class Destination(NamedTuple):
    """What the system's `ssh` gets as arguments; the rest it reads in its own files."""

    host: str
    user: str | None = None
    port: int | None = None
    identity: str | None = None
    config: str | None = None  # replaces its files, as `ssh -F`


@dataclass(frozen=True, slots=True)
class Target:
    """How to connect to a machine over one address. Paths are local, `~` and tokens expanded.

    `jumps` are the jump hosts in the order of connection; they have no jumps of their own, and only
    the first can have a proxy command. `others` are the other addresses of the same machine, to be
    tried in order: its host key must be the same on each.
    """

    name: str  # the name that the user typed
    address: str
    port: int
    user: str
    identities: tuple[str, ...]  # key files in order
    identities_configured: bool = False  # else the default files, which may not exist
    identities_only: bool = False  # do not offer other keys of the agent
    certificates: tuple[str, ...] = ()
    agent: str | None = DEFAULT_AGENT  # DEFAULT_AGENT or the path of a socket; None: no agent
    jumps: tuple[Target, ...] = ()
    proxy_command: str | None = None  # for a local shell, tokens expanded
    host_key_alias: str | None = None  # the name to search in known_hosts, instead of address
    known_hosts: tuple[str, ...] = ()  # the user's files; new keys go into the first
    system_known_hosts: tuple[str, ...] = ()
    strict: str = "ask"  # StrictHostKeyChecking: ask, yes, no, accept-new
    family: str = "any"  # any, inet, inet6
    connect_timeout: float | None = None  # seconds
    alive_interval: float | None = None  # seconds, 0: off; None: not configured
    alive_count: int | None = None
    authentications: tuple[str, ...] = values.METHODS
    notes: tuple[str, ...] = ()  # problems of the files, shown if the login fails
    unsupported: tuple[str, ...] = ()  # settings of the files that only OpenSSH follows
    transport: str | None = None  # PARAMIKO or OPENSSH; None: OPENSSH where it is needed
    shares_login: bool = True  # a login that `ssh` shares may be used
    destination: Destination | None = None
    others: tuple[Target, ...] = ()


class _Query(NamedTuple):
    """One machine to resolve: its address, and settings that override the files."""

    name: str
    parsed: Address
    identity: str | None = None
    proxy_jump: str | None = None  # overrides ProxyJump of the files
    proxy_jump_where: str | None = None  # file and line of `proxy_jump`
    hops: int = 0


def format_route(target: Target) -> str:
    """Return the address as `me@10.0.0.5:2201`, with its jump hosts."""
    address = f"[{target.address}]" if ":" in target.address else target.address
    port = "" if target.port == STANDARD_PORT else f":{target.port}"
    via = ", ".join(format_route(jump) for jump in target.jumps)
    via = via or ("a proxy command" if target.proxy_command else "")
    return f"{target.user}@{address}{port}" + f" via {via}" * bool(via)


def resolve_target(
    name: str, host: Host | None, local: LocalUser, *, config: str | None = None
) -> Target:
    """Return the Target of the machine `name`.

    `host` is its entry in the hosts file, if any; `config` replaces the user's and the system's
    ssh_config, as with `ssh -F`. Raises ConfigError with file and line.
    """
    if host is None:
        return _resolve(_Query(name, parse_address(name)), local, config)
    if host.is_kubernetes:
        raise ConfigError(
            f"`{name}` is a cluster of Kubernetes, no machine that SSH reaches",
            where=host.kubernetes.origin if host.kubernetes else None,
            hint="safelaunch run --on kubernetes --dry-run; or `address:` for a machine of it",
        )
    routes = []
    for text in host.addresses or (host.ssh or name,):
        parsed = parse_address(text, name)
        parsed = parsed._replace(user=parsed.user or host.user, port=parsed.port or host.port)
        route = _resolve(_Query(name, parsed, host.identity), local, config)
        routes.append(replace(route, transport=host.transport))
    return replace(routes[0], others=tuple(routes[1:]))


def _resolve(query: _Query, local: LocalUser, config: str | None) -> Target:
    parsed = query.parsed
    options = ssh_config.effective_options(parsed.host, local, config=config, user=parsed.user)
    address = ssh_config.host_name(options)
    port = parsed.port or values.port(options)
    user = parsed.user or values.word(options, "user") or local.user
    alias = (values.word(options, "hostkeyalias") or "").lower() or None
    tokens = {"h": address, "n": parsed.host, "p": str(port), "r": user}
    account = {"d": local.home, "i": local.uid, "k": alias or parsed.host}
    machine = {"L": local.hostname.split(".")[0], "l": local.hostname, "u": local.user}
    files = _Files(options, local, tokens | account | machine)
    jumps, command = _proxies(options, query, local, config, tokens)
    explicit = [] if query.identity is None else [expand_home(query.identity, local)]
    identities = [*explicit, *files.from_lines("identityfile")]
    defaults = [str(local.path.join(local.ssh_folder, file)) for file in _DEFAULT_IDENTITIES]
    is_configured = bool(explicit or options.lines("identityfile"))
    values.note_unsupported_options(options)
    return Target(
        name=query.name,
        address=address,
        port=port,
        user=user,
        identities=tuple(dict.fromkeys(identities if is_configured else defaults)),
        identities_configured=is_configured,
        # many keys of an agent could reach the server's MaxAuthTries before the configured one
        identities_only=bool(explicit) or values.is_on(options, "identitiesonly"),
        certificates=tuple(dict.fromkeys(files.from_lines("certificatefile"))),
        agent=files.agent(),
        jumps=jumps,
        proxy_command=command,
        host_key_alias=alias,
        known_hosts=files.from_words(
            "userknownhostsfile", local.ssh_folder, "known_hosts", "known_hosts2"
        ),
        system_known_hosts=files.from_words(
            "globalknownhostsfile", local.system_folder, "ssh_known_hosts", "ssh_known_hosts2"
        ),
        strict=values.strictness(options),
        family=values.choice(options, "addressfamily", ("any", "inet", "inet6")),
        connect_timeout=values.duration(options, "connecttimeout"),
        alive_interval=values.duration(options, "serveraliveinterval"),
        alive_count=values.count(options, "serveralivecountmax"),
        authentications=values.auth_methods(options),
        notes=tuple(options.notes),
        unsupported=tuple(options.unsupported),
        destination=Destination(
            parsed.host,
            parsed.user,
            parsed.port,
            explicit[0] if explicit else None,
            config or local.own_config,
        ),
    )


class _Files(NamedTuple):
    """Reads the options whose values are paths, in which `tokens` are expanded."""

    options: Options
    local: LocalUser
    tokens: dict[str, str]

    def from_lines(self, keyword: str) -> list[str]:
        """Return the files of an option that may have several lines."""
        lines = self.options.lines(keyword)
        return self._expand((line.word(), line) for line in lines)

    def from_words(self, keyword: str, folder: str, *defaults: str) -> tuple[str, ...]:
        """Return the files of an option with several in one line; default: names in a folder."""
        line = self.options.line(keyword)
        if line is None:
            return tuple(str(self.local.path.join(folder, name)) for name in defaults)
        return tuple(self._expand((word, line) for word in line.words()))

    def agent(self) -> str | None:
        """Return the socket of the agent, DEFAULT_AGENT, or None for no agent."""
        line = self.options.line("identityagent")
        word = DEFAULT_AGENT if line is None else line.word()
        if line is None or word == DEFAULT_AGENT:
            return DEFAULT_AGENT
        if re.fullmatch(r"\$[A-Za-z0-9_]+", word):
            return self.local.environ.get(word[1:]) or None
        resolved = self._expand([(word, line)])
        return resolved[0] if resolved else None

    def _expand(self, words: Iterable[tuple[str, ConfigLine]]) -> list[str]:
        resolved = []
        for word, line in words:
            if word.lower() == "none":
                continue
            try:
                resolved.append(expand_path(word, self.tokens, self.local, line.where))
            except UnsetVariable as e:
                note = f"{line.where}: `{word}` is ignored, ${e} is not set"
                self.options.notes[note] = None
        return resolved


def _proxies(
    options: Options, query: _Query, local: LocalUser, config: str | None, tokens: dict[str, str]
) -> tuple[tuple[Target, ...], str | None]:
    """Return the jump hosts in the order of connection, and the proxy command of the first one.

    Only for the first jump host the ProxyJump of the files counts, as with `ssh -J`.
    """
    line, command = options.proxy_jump(), options.line("proxycommand")
    if query.proxy_jump is not None:
        text, where = query.proxy_jump, query.proxy_jump_where
    elif line is not None:
        text, where = expand_percent_tokens(line.text, tokens, line.where), line.where
    elif command is None or command.text.lower() == "none":
        return (), None
    else:
        return (), expand_percent_tokens(command.text, tokens, command.where)
    if query.hops >= _MAX_HOPS:
        raise ConfigError(
            f"`{query.parsed.host}` is its own jump host",
            where=where,
            hint="exclude the jump host from its own block: Host * !jumphost",
        )
    earlier, _, last = text.rpartition(",")
    parsed = parse_address(last.strip(), where)
    hop = _resolve(
        _Query(parsed.host, parsed, None, earlier or None, where, query.hops + 1), local, config
    )
    return (*hop.jumps, replace(hop, jumps=())), None
