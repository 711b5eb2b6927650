"""Where a job's files lie, and where its plan says that they lie."""

from __future__ import annotations

import os
import posixpath
from typing import NamedTuple

from safelaunch.config.schema.text_checks import check_text
from safelaunch.config.yaml_io.node import Node
from safelaunch.model import Origin

HOME = "<home>"  # in a dry-run: only the host knows its user's home folder
FOLDER = "~/safelaunch"  # on hosts: for the projects of those that name no `workdir`
ASSETS = f"{FOLDER}/assets"  # on each host, whatever its `workdir`: what was pushed lies there


class Paths(NamedTuple):
    """Where files lie, and where the plan says that they lie (`--project-root`)."""

    cwd: str
    job_dir: str  # real folder of the job file
    root: str  # real project root: the nearest .git or pyproject.toml above the job file
    shown_root: str  # what the plan prints instead of it

    @classmethod
    def of(cls, job_path: str, cwd: str, project_root: str | None) -> Paths:
        """Return the paths of a job file."""
        job_dir = os.path.normpath(os.path.dirname(os.path.abspath(os.path.join(cwd, job_path))))
        check_text(Node("scalar", Origin("the job's folder"), text=job_dir))
        root = _project_root(job_dir)
        return cls(cwd, job_dir, root, _shown(project_root, cwd) if project_root else root)

    def base(self, origin: Origin) -> str:
        """Return the real folder that a relative path of that origin starts from."""
        if not origin.line:  # a flag: relative to the job file, like the key that it replaces
            return self.job_dir
        return os.path.dirname(os.path.abspath(os.path.join(self.cwd, origin.source)))

    def real(self, path: str, origin: Origin) -> str:
        """Return the path on this machine; one that only a host can have stays."""
        if path.startswith("/") and os.sep != "/":
            return posixpath.normpath(path)
        return os.path.normpath(os.path.join(self.base(origin), path))

    def planned(self, path: str, origin: Origin) -> str:
        """Return the path that the plan names."""
        return self.view(self.real(path, origin))

    def view(self, real: str) -> str:
        """Return a real path as if the project lay at the shown root."""
        if not self.is_inside(real):
            return real
        below = os.path.relpath(real, self.root).replace(os.sep, "/")
        return self.shown_root if below == "." else posixpath.join(self.shown_root, below)

    def is_inside(self, real: str) -> bool:
        """Whether a real path is the project root, or lies below it."""
        path, root = os.path.normcase(real), os.path.normcase(self.root)
        return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def _shown(project_root: str, cwd: str) -> str:
    if project_root.startswith(
        ("/", "<")
    ):  # on another machine, or below a folder known only there
        return posixpath.normpath(project_root)
    return os.path.abspath(os.path.join(cwd, project_root))


def _project_root(folder: str) -> str:
    at = folder
    while True:
        if any(os.path.exists(os.path.join(at, name)) for name in (".git", "pyproject.toml")):
            return at
        above = os.path.dirname(at)
        if above == at:
            return folder
        at = above
