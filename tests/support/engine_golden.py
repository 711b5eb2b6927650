"""The job for an engine in tests/golden, planned as if its checkout lay at ROOT, and printed."""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from safelaunch.cli.plan_text.plan import print_explanation, print_plan
from safelaunch.config.resolve import Flags, resolve_file
from safelaunch.plan.build import make_plan
from support.example_checkouts import GOLDEN, ROOT

if TYPE_CHECKING:
    from safelaunch.config.resolve import Resolved
    from safelaunch.model import Plan

FORMS = ("plan", "explain")


def planned(engine: str, folder: Path) -> tuple[Resolved, Plan]:
    """Return the job in a checkout: `ENGINE.yaml` with a hosts file and its script."""
    (folder / ".git").mkdir()
    (folder / "train.py").touch()
    for name, source in (
        (f"{engine}.yaml", f"jobs/{engine}.yaml"),
        ("hosts.yaml", f"hosts/{engine}.yaml"),
    ):
        (folder / name).write_bytes((GOLDEN / source).read_bytes())
    flags = Flags(engine=engine, hosts_file="hosts.yaml", project_root=ROOT)
    resolved = resolve_file(f"{engine}.yaml", flags, str(folder))
    return resolved, make_plan(resolved)


def printed(engine: str, folder: Path, form: str) -> str:
    """Return what a dry-run of the job prints, or with the form `explain` its origins."""
    resolved, plan = planned(engine, folder)
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        print_explanation(resolved, plan) if form == "explain" else print_plan(plan)
    return output.getvalue()


def rewrite(engine: str) -> None:
    """Write the golden files of an engine anew."""
    for form in FORMS:
        with tempfile.TemporaryDirectory() as folder:
            text = printed(engine, Path(folder), form)
        (GOLDEN / f"{engine}-{form}.txt").write_text(text, encoding="utf-8")
