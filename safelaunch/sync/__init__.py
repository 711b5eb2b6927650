"""Copy a project and large files to a host without rsync, and fetch results.

Uses the agent on the host (remote/agent_client.py) only by its protocol in sender.py.
"""

from safelaunch.sync.ignore import Rules
from safelaunch.sync.pull import PullSummary, pull
from safelaunch.sync.push import LIMIT, PendingPush, push_file, push_tree, start_push
from safelaunch.sync.summary import Summary
from safelaunch.sync.transfer_progress import TransferProgress

__all__ = [
    "LIMIT",
    "PendingPush",
    "PullSummary",
    "Rules",
    "Summary",
    "TransferProgress",
    "pull",
    "push_file",
    "push_tree",
    "start_push",
]
