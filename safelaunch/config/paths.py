"""Where a job's files are on this machine, and which paths its plan names for them."""

from __future__ import annotations

import os
import posixpath
from typing import NamedTuple

from safelaunch.config.schema.text_checks import check_text
from safelaunch.config.yaml_io.node import Node
from safelaunch.model import Host, Origin, Slot, Word, join_path, text

FOLDER = "~/safelaunch"  # on hosts without `workdir`: the parent of the synced projects
ASSETS = f"{FOLDER}/assets"  # on each host, whatever its `workdir`: the assets that were pushed


class Paths(NamedTuple):
    """Folders of a job on this machine, and the project root that the plan names."""

    cwd: str
    job_dir: str  # real folder of the job file
    root: str  # real project root: the nearest .git or pyproject.toml above the job file
    planned_root: Word  # the same in the plan: `--project-root`, or a slot for the host's folder

    @classmethod
    def from_job(
        cls, job_path: str, cwd: str, project_root: str | None = None, *, remote: bool = False
    ) -> Paths:
        """Return the paths of a job file; `remote`: each host has a folder for the project."""
        job_dir = os.path.normpath(os.path.dirname(os.path.abspath(os.path.join(cwd, job_path))))
        check_text(Node("scalar", Origin("the job's folder"), text=job_dir))
        root = _project_root(job_dir)
        if remote:
            return cls(cwd, job_dir, root, text(Slot.PROJECT))
        if not project_root:
            return cls(cwd, job_dir, root, root)
        if project_root.startswith("/"):  # perhaps of a machine with other paths than this one
            return cls(cwd, job_dir, root, posixpath.normpath(project_root))
        return cls(cwd, job_dir, root, os.path.abspath(os.path.join(cwd, project_root)))

    def base(self, origin: Origin) -> str:
        """Return the folder that a relative path of that origin starts from."""
        if not origin.line:  # a flag: relative to the job file, like the key that it overrides
            return self.job_dir
        return os.path.dirname(os.path.abspath(os.path.join(self.cwd, origin.source)))

    def real(self, path: str, origin: Origin) -> str:
        """Return the path on this machine; a path of Linux stays as it is on Windows."""
        if path.startswith("/") and os.sep != "/":
            return posixpath.normpath(path)
        return os.path.normpath(os.path.join(self.base(origin), path))

    def planned(self, path: str, origin: Origin) -> Word:
        """Return the path that the plan names."""
        return self.view(self.real(path, origin))

    def view(self, real: str) -> Word:
        """Return a path of this machine with the planned root in place of the project's."""
        if not self.is_inside(real):
            return real
        below = os.path.relpath(real, self.root).replace(os.sep, "/")
        return self.planned_root if below == "." else join_path(self.planned_root, below)

    def is_inside(self, real: str) -> bool:
        """Whether a path of this machine is the project root, or below it."""
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
    root = folder
    while not any(os.path.exists(os.path.join(root, name)) for name in (".git", "pyproject.toml")):
        if root == os.path.dirname(root):
            return folder
        root = os.path.dirname(root)
    return root
