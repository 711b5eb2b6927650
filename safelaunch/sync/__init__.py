"""Brings a project to a host without rsync, large files too, and results back.

Knows an agent (remote/agent.py) by what it can do, not the connection below it.
"""

from safelaunch.sync.ignore import Rules
from safelaunch.sync.pull import Pulled, pull
from safelaunch.sync.push import LIMIT, Begun, begin_tree, push_file, push_tree
from safelaunch.sync.summary import Summary
from safelaunch.sync.transfer_progress import Progress

__all__ = [
    "LIMIT",
    "Begun",
    "Progress",
    "Pulled",
    "Rules",
    "Summary",
    "begin_tree",
    "pull",
    "push_file",
    "push_tree",
]
