"""Records what a run was made of: commit, hashes of files, package versions by metadata, no import.

    python provenance.py NODE_DIR CWD

Run by the job's own interpreter beside the job, which does not wait for it: a checkout on a slow
network disk must not delay a start.
"""

import os
import re
import sys

# the package is three folders up, and nothing else is on the path
sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))

from safelaunch.runtime import SITE, json_files
from safelaunch.runtime.code import git
from safelaunch.runtime.code.launch_record import code_record
from safelaunch.runtime.packages import MODULES, RECORDED
from safelaunch.runtime.records import CodeRecord, PlanRecord, Provenance, RunRecord
from safelaunch.runtime.start import code_files, runtime_copy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

DIGITS = 16  # of a hash in record.json: two contents differ in them


def versions() -> "dict[str, str]":
    """Return {package: version} of what is installed, by the names of its folders.

    importlib.metadata would take 80 ms of a core, which the job's own start may need.
    """
    packages: "dict[str, str]" = {}
    for folder in sys.path:
        try:
            entries = os.listdir(folder or os.curdir)
        except OSError:
            continue  # a zip, or no folder at all
        for entry in entries:
            if not entry.endswith((".dist-info", ".egg-info")):
                continue
            name, dash, rest = os.path.splitext(entry)[0].partition("-")
            name = name.replace("_", "-").replace(".", "-").lower()
            if dash and name in RECORDED:
                packages.setdefault(name, rest.partition("-")[0])
    return packages


# from a line break on, which is searched for in half of the time that `^` takes
_IMPORT = re.compile(rb"\n[ \t]*(?:import|from)[ \t]+([A-Za-z_]\w*)")


def used(argv: "Sequence[str]", cwd: str, paths: "Iterable[str]") -> "list[str]":
    """Return the recorded packages that a job uses: its launcher's, its program's, its files'."""
    # `-m torch.distributed.run`, `-m accelerate.commands.launch`, `-m swift.cli.sft`
    modules = [argv[at + 1].partition(".")[0] for at, word in enumerate(argv[:-1]) if word == "-m"]
    # the files that the command names first
    for path in sorted(paths, key=lambda path: path not in argv):
        try:
            with open(os.path.join(cwd, path), "rb") as file:
                text = file.read()
        except OSError:
            continue
        modules += [match.decode() for match in _IMPORT.findall(b"\n" + text)]
    names = [MODULES.get(module, module.replace("_", "-").lower()) for module in modules]
    return [name for name in dict.fromkeys(names) if name in RECORDED]


def code(node_dir: str, run: RunRecord, hashes: "Mapping[str, str]") -> "CodeRecord":
    """Return the record of the code: as the launching machine has sent it, else made now."""
    record = CodeRecord.read(node_dir)
    if record is not None:
        return record
    root, files = code_files.project_files(run, hashes, git.top(run.cwd))
    home = os.path.abspath(os.path.join(node_dir, *[os.pardir] * 3))
    record, patch = code_record(root, files, home, git.state(root))
    if patch:
        json_files.replace(os.path.join(node_dir, CodeRecord.PATCH), patch)
    record.write(node_dir)
    return record


def _compile_hooks() -> None:
    """Compile what each rank imports, while the launcher still imports torch: 4 ms for each.

    Python itself does not notice where a disk takes only a part of a bytecode file.
    """
    try:
        for name in os.listdir(SITE):
            if name.endswith(".py"):
                runtime_copy.compile_file(os.path.join(SITE, name))
    except (OSError, NotImplementedError):
        pass  # a full disk: the ranks compile for themselves


def main(node_dir: str, cwd: str) -> None:
    """Write record.json: whole, or not at all."""
    _compile_hooks()
    run, plan = RunRecord.read(node_dir) or RunRecord(), PlanRecord.read(node_dir) or PlanRecord()
    argv = next((node.argv for node in plan.nodes if node.node_rank == run.node), ())
    # first: while the job reads them, they are as it gets them; who starts it may edit them next
    hashes, more_files = code_files.recorded(run, argv, run.created_at)
    try:  # from now on only on a core that the job's own start leaves idle
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):
        os.nice(19)
    files = {name: content[:DIGITS] for name, content in hashes.items()}
    own = [path for path in files if path.endswith(".py")]
    record = Provenance(
        version=1,
        cwd=cwd,
        interpreter=sys.executable,
        python=sys.version.split()[0],
        git=code(node_dir, run, hashes).git,
        files=files,
        more_files=more_files,
        packages=versions(),
        uses=used(argv, cwd, own),
    )
    if run.container is not None:  # this interpreter is that of the machine
        record.interpreter, record.python = run.python or "", run.container.python
        record.packages = run.container.packages
    record.imported = code_files.imported(node_dir, files, cwd)
    record.write(node_dir)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
    os._exit(0)  # Python's own end takes all modules apart: a tenth of its CPU time
