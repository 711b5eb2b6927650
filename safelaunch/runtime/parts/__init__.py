"""Parts of a run: one job over many pieces of its input, or over many values.

The job of such a run is a coordinator (runtime/coordinator) in the place of the launcher. Each part
is a member of the run, `members/part-<number>/node-0/`, with a supervisor, log and failure of its
own. Here is what is read of them, also by clients: which there are, and which have ended.
"""

from __future__ import annotations

FORMATS = ("lines", "jsonl", "csv")  # of an input
MERGES = (*FORMATS, "json")  # of outputs: json for one list in each
TEMPLATE = "parts"  # member whose files are those of every part


class PartsError(Exception):
    """What keeps parts from being made or merged, in one sentence."""
