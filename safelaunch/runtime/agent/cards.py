"""Verb for the cards of this machine and their queue."""

# ruff: noqa: ARG001 - all verbs have one signature

from __future__ import annotations

import os

from safelaunch.runtime.cards import report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.agent.wire import Link, Message


def look(request: Message, link: Link) -> Message:
    """Return the cards of this machine, who has them, and who waits."""
    return report.look(os.environ).to_json()


VERBS = {"look": look}
