"""Read the log of the system's `ssh` (`ssh -v`): the credential, the host key, the error.

The words are those of OpenSSH's source (sshconnect.c, sshconnect2.c, clientloop.c, mux.c), which
have not changed between 8.0 and 9.9 but where a comment says so.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from typing import TYPE_CHECKING

from safelaunch.runtime.plain_text import printable
from safelaunch.ssh import errors
from safelaunch.ssh.config.target import CONNECT_TIMEOUT
from safelaunch.ssh.keys.known_hosts import HostKey, key_type_name
from safelaunch.ssh.prompt import ANSWERS, PASSWORD

if TYPE_CHECKING:
    from safelaunch.errors import HostError
    from safelaunch.ssh.config.target import Target

SHARED = "a login that ssh shares"
_CREDENTIALS = {
    "password": PASSWORD,
    "keyboard-interactive": ANSWERS,
    "none": "no proof: the server asked for none",
}
_ERRNO = {os.strerror(number): number for number in errno.errorcode}
_KEY = r"(?P<path>.+) (?P<key>\S+ SHA256:\S+)(?P<flags>(?: explicit| agent| token| authenticator)*)"
_ACCEPTED = re.compile(rf"^debug1: Server accepts key: {_KEY}$", re.MULTILINE)
_OFFERED = re.compile(rf"^debug1: Offering public key: {_KEY}$", re.MULTILINE)
_PARTIAL = re.compile(r'^Authenticated using "(.+)" with partial success', re.MULTILINE)
_COMPLETE = re.compile(r'^(?:debug1: )?Authenticated to .+? using "(.+)"\.$', re.MULTILINE)
_ATTEMPTED = re.compile(
    r"^debug1: Next authentication method: (password|keyboard.*|gssapi.*)$", re.MULTILINE
)
_DENIED = re.compile(r"Permission denied \((?P<methods>[^)]*)\)\.")
_SERVER_KEY = re.compile(
    r"^debug1: Server host (?:key|certificate): (\S+) (SHA256:[^\s,]+)", re.MULTILINE
)
_MATCHED_KEY = re.compile(r"^debug1: Found (?:CA )?key in (.+:\d+)$", re.MULTILINE)
_CHANGED = "REMOTE HOST IDENTIFICATION HAS CHANGED"
# a line of the log that says nothing about a failure
_NOISE = re.compile(r"debug\d: |Transferred: |Bytes per second: |@@@|\s*$")


def is_authenticated(log: str) -> bool:
    """Whether the server has accepted the login."""
    return _COMPLETE.search(log) is not None


def end_of_login(log: str) -> int:
    """Return the position behind the line that says that the server has accepted the login."""
    match = _COMPLETE.search(log)
    return match.end() if match is not None else 0


def has_changed_key(log: str) -> bool:
    """Whether known_hosts has another key of the server, whatever `ssh` made of that."""
    return _CHANGED in log


def credential(log: str) -> str:
    """Return what the server accepted, in the words of `Login.run`."""
    methods = _PARTIAL.findall(log) + _COMPLETE.findall(log)
    return " and ".join(_used(method, log) for method in methods) or SHARED


def _used(method: str, log: str) -> str:
    accepted = list(_ACCEPTED.finditer(log))
    if method == "publickey" and accepted:
        return _describe(accepted[-1])
    return _CREDENTIALS.get(method, method)


def _describe(match: re.Match[str]) -> str:
    agent = "agent: " * ("agent" in match["flags"] and not match["path"].startswith("/"))
    return f"{agent}{match['path']} ({match['key']})"


def host_key(log: str) -> HostKey | None:
    """Return the server's host key; None where another process has checked it."""
    key = _SERVER_KEY.search(log)
    if key is None:
        return None
    place = _MATCHED_KEY.search(log)
    return HostKey(f"{key_type_name(key[1])} {key[2]}", place[1] if place else None)


def new_host_keys(log: str) -> list[str]:
    """Return the notices of host keys that were stored, as StrictHostKeyChecking lets `ssh` do."""
    return [printable(line.strip()) for line in log.splitlines() if "Permanently added" in line]


def last_error(text: str) -> str:
    """Return the last line that is no trace, for a message; "" without one."""
    lines = [line for line in text.splitlines() if not _NOISE.match(line)]
    return printable(lines[-1].strip()) if lines else ""


def session_error(target: Target, log: str) -> HostError | None:
    """Return why the server refused a command; None where it did not."""
    name = target.name
    refused = re.search(r"(?:session request|open) failed: (.+)", log)
    if refused is not None:
        return errors.session_refused(name, printable(refused[1].strip()))
    if re.search(r"(exec|shell|subsystem) request failed on channel", log):
        return errors.exec_refused(name)
    return None


def login_error(
    target: Target, log: str, stderr: str, attempts: int, *, may_prompt: bool
) -> HostError:
    """Return the error of a login that failed; `stderr` has the words of jumps and proxies."""
    if target.jumps or target.proxy_command:
        inner = (
            _host_key_error(target, stderr)
            or _server_error(target, stderr, may_prompt=may_prompt)
            or _connection_error(target, stderr)
        )
        if inner is not None:
            return type(inner)(f"on the way: {inner.message}", where=inner.where, hint=inner.hint)
    return (
        _host_key_error(target, log)
        or _server_error(target, log, may_prompt=may_prompt)
        or _connection_error(target, log)
        or _handshake_error(target, log, stderr, attempts)
    )


def _host_key_error(target: Target, log: str) -> HostError | None:
    key, name = host_key(log), target.name
    shown = key.description if key is not None else "no key"
    if has_changed_key(log):
        place = re.search(r"^Offending \S+ key in (.+)$", log, re.MULTILINE)
        remedy = re.search(r"^ +(ssh-keygen -f .+)$", log, re.MULTILINE)
        text = f"its host key has changed: it shows {shown}"
        hint = "the machine was replaced or reinstalled, or somebody intercepts the connection"
        return errors.UntrustedHostKey(
            text + (f", but {place[1]} has another" if place else ""),
            where=name,
            hint=hint + (f". If you know the reason: {remedy[1]}" if remedy else ""),
        )
    if "REVOKED HOST KEY DETECTED" in log or "was revoked" in log:
        text = f"its host key is revoked: {shown}"
        return errors.UntrustedHostKey(text, where=name)
    if "Host key verification failed" not in log:
        return None
    if "you have requested strict checking" in log:
        hint = (
            "StrictHostKeyChecking forbids unknown keys: compare the fingerprint with the "
            "machine's own and add the key to known_hosts"
        )
    else:
        hint = (
            "connect once from a terminal, compare the fingerprint and answer yes: "
            f"safelaunch hosts test {name}"
        )
    text = f"its host key is not known: {shown}"
    return errors.UntrustedHostKey(text, where=name, hint=hint)


def _server_error(target: Target, log: str, *, may_prompt: bool) -> HostError | None:
    """Return the error of a server that refused the login."""
    tried = [*dict.fromkeys(map(_describe, _OFFERED.finditer(log)))]
    if "Too many authentication failures" in log:
        return errors.too_many_keys(target, tried)
    denied = _DENIED.search(log)
    if denied is None:
        return None
    offers, typed = denied["methods"].split(","), [*dict.fromkeys(_ATTEMPTED.findall(log))]
    accepted = [_used(method, log) for method in _PARTIAL.findall(log)]
    if accepted and not typed:
        return errors.login_incomplete(target, accepted, offers, may_prompt=may_prompt)
    return errors.LoginFailed(
        f"login failed for {target.user}@{target.address}: tried "
        f"{', '.join((*tried, *typed)) or 'nothing'}; the server offers {', '.join(offers)}",
        where=target.name,
        hint=f"`ssh {target.name}` in a terminal must work first: it is what safelaunch runs",
    )


def _connection_error(target: Target, text: str) -> HostError | None:
    """Return the error of a name or a port that cannot be reached."""
    unresolved = re.search(r"Could not resolve hostname \S+: (.+)", text)
    if unresolved is not None:
        temporary = "emporary failure" in unresolved[1]
        number = socket.EAI_AGAIN if temporary else socket.EAI_NONAME
        return errors.name_not_resolved(target, socket.gaierror(number, unresolved[1].strip()))
    refused = re.search(r"ssh: connect to host (\S+) port (\d+): (.+)", text)
    if refused is not None:
        reason = refused[3].strip()
        error = OSError(_ERRNO.get(reason, 0), reason)
        return errors.tcp_connect_failed(target, error, target.connect_timeout or CONNECT_TIMEOUT)
    forwarded = re.search(r"channel \d+: open failed: (.+)", text)
    if forwarded is not None:
        jump = target.jumps[-1].name if target.jumps else "of ssh"
        return errors.forwarding_refused(target, jump, printable(forwarded[1].strip()))
    return None


def _handshake_error(target: Target, log: str, stderr: str, attempts: int) -> HostError:
    """Return the error of a server that was reached; the first that the log shows."""
    reason = last_error(log) or last_error(stderr)
    if "no matching" in log:
        return errors.no_common_algorithm(target, reason)
    if "timed out during banner exchange" in log:
        seconds = target.connect_timeout or CONNECT_TIMEOUT
        return errors.handshake_timeout(target, seconds, "its greeting")
    if "Remote protocol version" not in log:
        if re.search(r"invalid format|protocol identifier|banner line", log):
            return errors.not_an_ssh_server(target, reason)
        if target.proxy_command is not None:
            last = last_error(stderr)
            return errors.proxy_command_failed(target, target.proxy_command, last, None)
        if re.search(r"kex_exchange_identification|[Cc]onnection (closed|reset) by", log):
            return errors.closed_before_handshake(target, attempts, "")
    what = "the connection was lost" if is_authenticated(log) else "ssh could not connect"
    return errors.Unreachable(
        f"{what}: {reason or 'no reason given'}",
        where=target.name,
        hint=f"`ssh -v {target.name}` shows more",
    )
