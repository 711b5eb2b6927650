"""The real command line, which tells how far it is: FD, then the words of a command.

Each mark goes to the socket FD, and the command waits until it has been noted. For measuring only.
"""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING, Any

from safelaunch.cli.main import main
from safelaunch.remote import agent_bootstrap
from safelaunch.remote.agent_client import Agent, Pending
from safelaunch.ssh import connection, handshake

if TYPE_CHECKING:
    from collections.abc import Callable


def mark(name: str) -> None:
    """Tell, and wait until it is noted."""
    out = socket.socket(fileno=NUMBER)
    out.sendall(name.encode() + b"\n")
    out.recv(1)
    out.detach()


def marked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that tells when it is done."""

    def call(*words: Any, **options: Any) -> Any:
        result = function(*words, **options)
        mark(name)
        return result

    return call


class Marked(Agent):
    """An agent's client that tells of each request and of each answer."""

    def ask(self, verb: str, data: Any = None, **request: Any) -> Pending:
        """Ask, and tell before it and when the answer is there."""
        mark(f"before {verb}")
        return self._marked(verb, super().ask(verb, data, **request))

    def ask_first(self, verb: str, **request: Any) -> Pending:
        """As `ask`."""
        mark(f"before {verb}")
        return self._marked(verb, super().ask_first(verb, **request))

    def _marked(self, verb: str, pending: Pending) -> Pending:
        vars(pending)["result"] = marked(f"behind {verb}", pending.result)
        return pending


if __name__ == "__main__":
    NUMBER = int(sys.argv.pop(1))
    handshake._connect_with_retries = marked("behind connect", handshake._connect_with_retries)
    connection.connect = marked("behind auth", connection.connect)
    vars(agent_bootstrap)["Agent"] = Marked
    main()
