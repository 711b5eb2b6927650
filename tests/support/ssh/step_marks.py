"""The real command line, which marks how far it is: FD, then the words of a command.

Each mark goes to the socket FD, and the command waits until it has been noted. For measuring only.
"""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING, Any

from safelaunch.cli.main import main
from safelaunch.remote import agent_bootstrap
from safelaunch.remote.agent_client import Agent, PendingReply
from safelaunch.ssh import connection, handshake, retries

if TYPE_CHECKING:
    from collections.abc import Callable


def mark(name: str) -> None:
    """Send a mark, and wait until it is noted."""
    out = socket.socket(fileno=NUMBER)
    out.sendall(name.encode() + b"\n")
    out.recv(1)
    out.detach()


def marked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that sends a mark when it is done."""

    def call(*words: Any, **options: Any) -> Any:
        result = function(*words, **options)
        mark(name)
        return result

    return call


class Marked(Agent):
    """An agent's client that marks each request and each answer."""

    def ask(self, verb: str, data: Any = None, **request: Any) -> PendingReply:
        """Ask, with a mark before it and one behind the answer."""
        mark(f"before {verb}")
        return self._marked(verb, super().ask(verb, data, **request))

    def ask_first(self, verb: str, **request: Any) -> PendingReply:
        """Ask as `ask` does, in the first command."""
        mark(f"before {verb}")
        return self._marked(verb, super().ask_first(verb, **request))

    def _marked(self, verb: str, reply: PendingReply) -> PendingReply:
        vars(reply)["result"] = marked(f"behind {verb}", reply.result)
        return reply


if __name__ == "__main__":
    NUMBER = int(sys.argv.pop(1))
    vars(handshake)["with_retries"] = marked("behind connect", retries.with_retries)
    connection.connect = marked("behind auth", connection.connect)
    vars(agent_bootstrap)["Agent"] = Marked
    main()
