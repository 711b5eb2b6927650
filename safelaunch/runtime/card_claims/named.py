"""The claim of a run that names its cards itself, and does not wait: the queue sees it."""

from __future__ import annotations

import os
import time

from safelaunch.runtime.card_claims import ALL, claims
from safelaunch.runtime.records import CardClaim, CardRequest, RunRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.card_claims.claims import OwnClaim

PATIENCE = 0.2  # seconds for the lock of the folder


def claim(run: RunRecord, request: CardRequest) -> OwnClaim | None:
    """Claim the cards of a run; None where that is not possible, which keeps no job from starting.

    Another claim of the same cards stays: the checks before the start say so.
    """
    words = [ALL] if run.gpus is None else list(run.gpus)
    if not words:
        return None
    record = CardClaim(
        run=run.id,
        node=run.node,
        pid=os.getpid(),
        kind=request.kind,
        words=words,
        since=time.time(),
    )
    try:
        with claims.locked_folder(request.folder, PATIENCE) as folder:
            return claims.create(request.folder, folder, record, is_waiting=False)
    except OSError:
        return None
