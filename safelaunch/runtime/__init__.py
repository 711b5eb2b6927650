"""What travels to the machine that runs the job: standard library only, Python >= 3.8.

It imports nothing of the rest of safelaunch. The files are copied into the run directory
and run from there; the client imports the same files for runs on its own machine.
"""

import os

FOLDER = os.path.dirname(os.path.abspath(__file__))
FILES = (
    "supervisor.py",
    "procs.py",
    "follow.py",
    "journal.py",
    "state.py",
    "record.py",
    "site/sitecustomize.py",
)
