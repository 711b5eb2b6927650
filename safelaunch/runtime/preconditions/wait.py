"""Waits for the preconditions of a run, one after another."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.runtime.preconditions import Precondition


def await_all(
    preconditions: Sequence[Precondition],
    show: Callable[[str], None],
    pause: Callable[[float], str],
) -> str:
    """Return "" once all are met, else why the run was stopped meanwhile.

    `show` is called with what it waits for; `pause` waits for so many seconds, and returns why the
    run is stopped, or "". Raises PreconditionFailed.
    """
    for precondition in preconditions:
        while True:
            try:
                reason = precondition.poll()
            except OSError as e:
                reason = f"a file that cannot be read for now: {e}"
            if not reason:
                break
            show(reason)
            stop_reason = pause(precondition.PAUSE)
            if stop_reason:
                return stop_reason
    return ""
