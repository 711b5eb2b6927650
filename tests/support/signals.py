"""Signals that a program ignores which a script's `&` or nohup starts, as all that it starts."""

from __future__ import annotations

import signal


def restore_interrupts() -> None:
    """Let programs that are started from now on end by SIGINT and SIGHUP, as those of a terminal.

    A handler keeps this process itself alive after the hangup that nohup is there for.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)
