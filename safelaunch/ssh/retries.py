"""Connect again to a server that closes connections at once: it restarts, or has too many."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, TypeVar

from safelaunch.ssh import errors

if TYPE_CHECKING:
    from collections.abc import Callable

RETRY_DELAYS = (1.0, 2.0, 4.0)  # seconds before each retry, plus or minus a random half
_T = TypeVar("_T")


def with_retries(name: str, notify: Callable[[str], None], attempt: Callable[[int], _T]) -> _T:
    """Return what an attempt returns, by its number; retry after ClosedBeforeHandshake."""
    for number, delay in enumerate((*RETRY_DELAYS, None), 1):
        try:
            return attempt(number)
        except errors.ClosedBeforeHandshake:  # noqa: PERF203 - at most four attempts
            if delay is None:
                raise
            # random, so that many rejected clients do not return at the same moment
            seconds = delay * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
            notify(
                f"{name}: closed before the SSH handshake (sshd restarting, MaxStartups or "
                f"fail2ban?); retry in {seconds:.1f} s, attempt {number + 1} of "
                f"{len(RETRY_DELAYS) + 1}"
            )
            time.sleep(seconds)
    raise AssertionError  # the last attempt returns or raises
