"""What travels to the machine that runs the job: standard library only, Python >= 3.8.

It imports nothing of the rest of safelaunch. The files lie in the run directory, below `runtime/`,
and run from there (start/runtime_copy.py); the client imports the same files for runs on its own
machine.
"""

import os

FOLDER = os.path.dirname(os.path.abspath(__file__))
PLACE = "runtime/safelaunch/runtime"  # of this package in a run directory
SITE = os.path.join(FOLDER, "site")  # goes onto the PYTHONPATH of ranks
AGENT_ONLY = ("agent", "facts")  # folders that no program of a run directory imports
memory: "dict[str, bytes]" = {}  # contents of `files`, for where they are not on the disk


def files(without: "tuple[str, ...]" = ()) -> "dict[str, str]":
    """Return {path in the run directory: path of the source} of all files that travel."""
    paths = {os.path.dirname(PLACE) + "/__init__.py": os.path.join(FOLDER, "../__init__.py")}
    for folder, subfolders, names in os.walk(FOLDER):
        subfolders[:] = sorted(name for name in subfolders if name not in without)
        place = PLACE + folder[len(FOLDER) :].replace(os.sep, "/")
        for name in sorted(names):
            if name.endswith((".py", ".json")):
                paths[f"{place}/{name}"] = os.path.join(folder, name)
    return paths


def module_name(path: str) -> str:
    """Return the name of the module at a path of `files`."""
    name = path[len("runtime/") : -len(".py")].replace("/", ".")
    return name[: -len(".__init__")] if name.endswith(".__init__") else name  # noqa: FURB188 - 3.9


def read_data(name: str) -> bytes:
    """Return a data file of this package, from memory once the run directory is gone."""
    try:
        with open(os.path.join(FOLDER, name), "rb") as file:
            return file.read()
    except OSError:
        if PLACE + "/" + name not in memory:
            raise
        return memory[PLACE + "/" + name]


def keep_in_memory(contents: "dict[str, bytes]") -> None:
    """Keep the contents of `files` for when they are removed from the disk."""
    memory.update(contents)
