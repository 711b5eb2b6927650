"""A project with the record of a launch of it, as its start makes it; nothing is started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from safelaunch.runs.store import Run
from safelaunch.runtime.records import PlannedNode, PlanRecord, RunRecord
from safelaunch.runtime.start import code_files, provenance
from support.project import Project

if TYPE_CHECKING:
    import pytest

    from safelaunch.model import Plan

JOB = """
launcher: python
script: train.py
args: {config: conf/a.yaml, out: $PROJECT/out, data: $PROJECT/data, lib: $PROJECT/src}
pythonpath: [src]
log: logs/{name}.log
"""


class Launch:
    """A project, its plan, and the record of a run of it; nothing is started."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = str(root / "home")
        monkeypatch.setenv("SAFELAUNCH_HOME", self.home)
        self.project = Project(root / "project")
        self.folder = self.project.folder
        for name in ("src/lib.py", "conf/a.yaml", "data/rows.csv", "out/old.pt", "conf/notes.txt"):
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_text(name)
        self.plan = self.project.plan(JOB.replace("$PROJECT", str(self.folder)))

    def record(self, plan: Plan, cwd: str, **files: bytes) -> Run:
        """Record a run of a plan as its start does."""
        run = Run(f"a-{cwd.count('/')}", f"{self.home}/runs/a-{cwd.count('/')}")
        node_dir = Path(run.folder, "node-0")
        node_dir.mkdir(parents=True)
        argv = [str(word) for word in plan.nodes[0].argv]
        roots = [cwd, f"{cwd}/src"]
        record = RunRecord(cwd=cwd, roots=roots, job_file=str(self.folder / "job.yaml"))
        record.write(str(node_dir))
        PlanRecord(nodes=[PlannedNode(argv=argv)]).write(str(node_dir))
        for name, data in files.items():
            (node_dir / name).write_bytes(data)
        hashes, _ = code_files.recorded(record, argv)
        provenance.code(str(node_dir), record, hashes)
        return run
