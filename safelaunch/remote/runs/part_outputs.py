"""Fetches the outputs of parts from the hosts that share them, and merges them on this machine."""

from __future__ import annotations

import os
import posixpath
from typing import TYPE_CHECKING

from safelaunch.errors import RunError
from safelaunch.remote.parallel import together
from safelaunch.runs import store
from safelaunch.runtime import members
from safelaunch.runtime.parts import PartsError, pieces
from safelaunch.runtime.records import FanOutSpec, RunRecord
from safelaunch.sync.download.pull import pull

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.remote.runs.remote_run import RemoteRun
    from safelaunch.runtime.records import MergeSpec, NodePlace
    from safelaunch.sync.transfer_progress import TransferProgress

_OUTPUTS = "members/part-*/output"  # in the folder of a node


def merge_of(run: store.Run) -> MergeSpec | None:
    """Return how the outputs of several hosts become one file; None where one host does it."""
    spec = FanOutSpec.read(run.node_dir)
    return None if spec is None or spec.hosts <= 1 else spec.merge


def merged_name(run: store.Run, merge: MergeSpec) -> str:
    """Return the path of the merged file, relative to the working directory of the job."""
    record = RunRecord.read(run.node_dir) or RunRecord()
    name = posixpath.relpath(merge.output, record.cwd or "/")
    return posixpath.basename(name) if name.startswith("../") else name


def merge_outputs(
    run: RemoteRun,
    merge: MergeSpec,
    target: str,
    progress: Callable[[TransferProgress], None] | None = None,
) -> int:
    """Write the merged file of a run whose parts have all succeeded; return how many there are.

    What was fetched stays in the record of the run, so that a second time fetches nothing.
    Raises RunError, HostError, Refused.
    """
    record = run.record
    done, count = store.part_counts(record) or (0, 0)
    if done < count:
        hint = f"safelaunch show {run.id} names the others"
        raise RunError(f"{done} of {count} parts of {run.id} are done", hint=hint)
    ends = store.part_ends(record)
    hosts = {end.source_sha256: end.host for end in ends.values()}
    if len(hosts) > 1:
        named = " and ".join(sorted(str(host) for host in hosts.values()))
        what = f"{named} have divided different files: their outputs are not those of one input"
        raise RunError(what, hint="the file of `shards: over` must be the same on all hosts")

    pool = run.pool

    def fetch(place: NodePlace) -> None:
        node_dir = store.node_dir(record, place.node)
        if (FanOutSpec.read(node_dir) or FanOutSpec()).share:
            agent = pool.session(place.host).agent
            pull(agent, [_OUTPUTS], node_dir, progress, root=place.run_dir, force=True)

    together(fetch, run.places())
    outputs = []
    for part in range(count):
        node_dir = store.node_dir(record, store.node_of_part(record, part))
        outputs.append(os.path.join(members.folder(node_dir, f"part-{part}"), "output"))
    try:
        pieces.join(outputs, merge.by, target)
    except (PartsError, OSError) as e:
        raise RunError(f"the outputs are not merged: {e}") from e
    return count
