"""What travels to the machine that runs the job: standard library only, Python >= 3.8.

It imports nothing of the rest of safelaunch. The files are copied into the run directory, below
`runtime/`, and run from there; the client imports the same files for runs on its own machine.
"""

import os

FOLDER = os.path.dirname(os.path.abspath(__file__))
PLACE = "runtime/safelaunch/runtime"  # of this package in a run directory


def files() -> "dict[str, str]":
    """Return {path in the run directory: path here} of all files that travel."""
    package = os.path.join(os.path.dirname(FOLDER), "__init__.py")
    found = {os.path.dirname(PLACE) + "/__init__.py": package}
    for below in ("", "site"):
        for name in sorted(os.listdir(os.path.join(FOLDER, below))):
            if name.endswith(".py"):
                path = "/".join(filter(None, (PLACE, below, name)))
                found[path] = os.path.join(FOLDER, below, name)
    return found


def folders() -> "list[str]":
    """Return the folders of `files` in a run directory, outer ones first."""
    return ["runtime", "runtime/safelaunch", PLACE, PLACE + "/site"]
