"""What travels to the machine that runs the job: standard library only, Python >= 3.8.

It imports nothing of the rest of safelaunch. The files are copied into the run directory, below
`runtime/`, and run from there; the client imports the same files for runs on its own machine.
"""

import os

FOLDER = os.path.dirname(os.path.abspath(__file__))
PLACE = "runtime/safelaunch/runtime"  # of this package in a run directory
SITE = os.path.join(FOLDER, "site")  # goes onto the PYTHONPATH of ranks
_memory = {}  # type: dict[str, bytes]


def files() -> "dict[str, str]":
    """Return {path in the run directory: path here} of all files that travel."""
    package = os.path.join(os.path.dirname(FOLDER), "__init__.py")
    found = {os.path.dirname(PLACE) + "/__init__.py": package}
    for folder, subfolders, names in os.walk(FOLDER):
        subfolders.sort()
        place = PLACE + folder[len(FOLDER) :].replace(os.sep, "/")
        for name in sorted(names):
            if name.endswith((".py", ".json")):
                found["%s/%s" % (place, name)] = os.path.join(folder, name)
    return found


def folders() -> "list[str]":
    """Return the folders of `files` in a run directory, outer ones first."""
    places = {os.path.dirname(path) for path in files()}
    return sorted({"runtime"} | places)


def module_name(path: str) -> str:
    """Return the name of the module at a path of `files`, as an import statement has it."""
    name = path[len("runtime/") : -len(".py")].replace("/", ".")
    return name[: -len(".__init__")] if name.endswith(".__init__") else name  # noqa: FURB188 - 3.9


def read_data(name: str) -> bytes:
    """Return a data file of this package, from memory once the run directory is gone."""
    try:
        with open(os.path.join(FOLDER, name), "rb") as file:
            return file.read()
    except OSError:
        if PLACE + "/" + name not in _memory:
            raise
        return _memory[PLACE + "/" + name]


def keep_in_memory(contents: "dict[str, bytes]") -> None:
    """Keep the contents of `files` for the time when they are gone from the disk."""
    _memory.update(contents)
