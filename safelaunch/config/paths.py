"""Where a job's files lie, and where its plan says that they lie."""

from __future__ import annotations

import os
import posixpath
from typing import NamedTuple

from safelaunch.config.schema.text_checks import check_text
from safelaunch.config.yaml_io.node import Node
from safelaunch.model import Host, Origin, Slot, Word, join_path, text

FOLDER = "~/safelaunch"  # on hosts: for the projects of those that name no `workdir`
ASSETS = f"{FOLDER}/assets"  # on each host, whatever its `workdir`: what was pushed lies there


class Paths(NamedTuple):
    """Where files lie, and where the plan says that they lie (`--project-root`)."""

    cwd: str
    job_dir: str  # real folder of the job file
    root: str  # real project root: the nearest .git or pyproject.toml above the job file
    planned_root: Word  # what the plan names instead of it

    @classmethod
    def from_job(
        cls, job_path: str, cwd: str, project_root: str | None = None, *, remote: bool = False
    ) -> Paths:
        """Return the paths of a job file; `remote`: the project lies in a folder of each host."""
        job_dir = os.path.normpath(os.path.dirname(os.path.abspath(os.path.join(cwd, job_path))))
        check_text(Node("scalar", Origin("the job's folder"), text=job_dir))
        root = _project_root(job_dir)
        if remote:
            return cls(cwd, job_dir, root, text(Slot.PROJECT))
        # an absolute one may be of a machine with other paths than this one
        is_posix = project_root is not None and project_root.startswith("/")
        if project_root:
            shown = os.path.abspath(os.path.join(cwd, project_root))
            return cls(cwd, job_dir, root, posixpath.normpath(project_root) if is_posix else shown)
        return cls(cwd, job_dir, root, root)

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

    def planned(self, path: str, origin: Origin) -> Word:
        """Return the path that the plan names."""
        return self.view(self.real(path, origin))

    def view(self, real: str) -> Word:
        """Return a real path as if the project lay at the planned root."""
        if not self.is_inside(real):
            return real
        below = os.path.relpath(real, self.root).replace(os.sep, "/")
        return self.planned_root if below == "." else join_path(self.planned_root, below)

    def is_inside(self, real: str) -> bool:
        """Whether a real path is the project root, or lies below it."""
        path, root = os.path.normcase(real), os.path.normcase(self.root)
        return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def host_path(path: str) -> Word:
    """Return a path of a host as a plan names it: `~/` is the home folder there."""
    return text(Slot.HOME, path[1:]) if path == "~" or path.startswith("~/") else path


def project_on_host(host: Host, root: str) -> Word:
    """Return the folder on a host that a project is synced to."""
    name = os.path.basename(root.rstrip("/\\")) or "project"
    return host_path(host.workdir or posixpath.join(FOLDER, name))


def _project_root(folder: str) -> str:
    at = folder
    while True:
        if any(os.path.exists(os.path.join(at, name)) for name in (".git", "pyproject.toml")):
            return at
        above = os.path.dirname(at)
        if above == at:
            return folder
        at = above
