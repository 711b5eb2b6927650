"""Real starts of a plan, by its launcher and directly, and what each rank then finds."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch import runtime
from safelaunch.model import Slot
from safelaunch.plan import direct
from safelaunch.plan.build import bind
from safelaunch.plan.serialize import script_of
from support.workspace import DEADLINE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from safelaunch.model import Plan
    from support.direct_start.rank_starts import Job
    from support.direct_start.starts import Start
    from support.project import Project

# the files of /proc first: what Python itself opens or sets later is no part of the start
PROGRAM = f"""#!{sys.executable}
import os
fds = {{}}
for name in os.listdir("/proc/self/fd"):
    try:
        fds[name] = os.readlink("/proc/self/fd/" + name)
    except OSError:
        pass  # that of the listing
fds = {{name: link for name, link in fds.items() if link != os.path.realpath(__file__)}}
import json, resource
raw = {{name: open("/proc/self/" + name, "rb").read() for name in ("cmdline", "environ", "status")}}
status = dict(line.split(":", 1) for line in raw["status"].decode().splitlines())
shown = ("SigIgn", "SigBlk", "ShdPnd", "NoNewPrivs", "Seccomp", "Cpus_allowed", "Mems_allowed",
         "CapInh", "CapEff", "CapAmb", "Uid", "Gid", "Groups")
mask = os.umask(0)
told = {{
    "words": [os.fsdecode(word) for word in raw["cmdline"].split(b"\\0")[:-1]],
    "env": dict(os.fsdecode(entry).split("=", 1) for entry in raw["environ"].split(b"\\0")[:-1]),
    "cwd": os.getcwd(),
    "umask": mask,
    "limits": {{n: resource.getrlimit(getattr(resource, n))
               for n in dir(resource) if n.startswith("RLIMIT_")}},
    "descriptors": fds,
    "leads session": os.getsid(0) == os.getpid() == os.getpgrp(),
    "nice": os.nice(0),
    "scheduler": os.sched_getscheduler(0),
    "status": {{name: status[name].strip() for name in shown if name in status}},
    "oom": open("/proc/self/oom_score_adj").read(),
}}
os.umask(mask)
path = os.path.join(os.environ["TOLD"], os.environ["RANK"] + ".json")
with open(path, "x") as file:
    json.dump(told, file)
"""
STDIN = "what is on stdin"


class Ranks(NamedTuple):
    """What each rank told, by number, and what the launchers printed."""

    ranks: dict[str, dict[str, Any]]
    codes: list[int]
    output: str


def write_program(folder: Path) -> None:
    """Write the program of the ranks: a script, a module, and a program of its own."""
    (folder / "pkg").mkdir()
    for path in (folder / "train.py", folder / "pkg" / "train.py"):
        path.write_text(PROGRAM, encoding="utf-8")
        path.chmod(0o755)


def free_port() -> str:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def plans(job: Job, project: Project, versions: Mapping[str, str]) -> list[tuple[Plan, Plan]]:
    """Return the plans of each node by hand, or of the one node: by the launcher, and directly."""
    result = []
    for number in range(job.keys.get("nodes", 1)):
        keys = {"node_rank": number} if "nodes" in job.keys else {}
        text = _changed(job.text, python=sys.executable, **keys)
        plan = project.plan(text)
        decided, reasons = direct.decide(plan, [versions])
        assert decided.nodes[0].ranks is not None, (plan.notes, reasons)
        result.append((project.plan(_changed(text, start="launcher")), decided))
    return result


def _changed(job: str, **keys: object) -> str:
    return json.dumps({**json.loads(job), **keys}, ensure_ascii=False)


def _filled(job: Job) -> Job:
    """Return a job with a port and a core of this machine for `PORT` and `CPU`."""
    words = {"PORT": free_port(), "CPU": str(min(os.sched_getaffinity(0)))}
    keys = {**job.keys}
    if "prefix" in keys:
        keys["prefix"] = [words.get(word, word) for word in keys["prefix"]]
    return replace(job, flags=tuple(words.get(word, word) for word in job.flags), keys=keys)


def _strange_process() -> None:
    """Set what a process may inherit from a shell, `nohup`, a cluster or a container."""
    for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD, signal.SIGUSR2):
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    os.umask(0o027)
    os.nice(3)
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus[:1])


def start(some: Sequence[Plan], place: Path, port: str, env: Mapping[str, str]) -> Ranks:
    """Run launch.sh of each plan, all at the same time, and return what the ranks told."""
    answers = place / "answers"
    answers.mkdir(parents=True)
    (place / "stdin").write_text(STDIN)
    processes = []
    with (place / "stdin").open() as stdin, (place / "output").open("a") as output:
        os.set_inheritable(stdin.fileno(), True)  # a descriptor too many
        for number, plan in enumerate(some):
            run_dir = place / f"run-{number}"
            run_dir.mkdir()
            (run_dir / runtime.PLACE).parent.mkdir(parents=True)
            (run_dir / runtime.PLACE).symlink_to(runtime.FOLDER)
            facts = {
                Slot.RUN_DIR: str(run_dir), Slot.PORT: port, Slot.THREADS: "1",
                Slot.RUN_ID: "job-1", Slot.PREFIX: sys.prefix, Slot.GPUS: "2",
            }  # fmt: skip
            bound = bind(plan, facts)
            for name, body in bound.nodes[0].files:
                (run_dir / name).write_text(str(body))
            (run_dir / "launch.sh").write_text(script_of(bound, bound.nodes[0]))
            processes.append(
                subprocess.Popen(
                    ["bash", str(run_dir / "launch.sh")],
                    stdin=stdin, stdout=output, stderr=output, close_fds=False,
                    restore_signals=False,
                    preexec_fn=_strange_process,  # noqa: PLW1509 - it takes no lock
                    env={**env, "TOLD": str(answers)},
                )
            )  # fmt: skip
        codes = [process.wait(DEADLINE) for process in processes]
    ranks = {path.stem: json.loads(path.read_text()) for path in sorted(answers.iterdir())}
    return Ranks(ranks, codes, (place / "output").read_text(errors="replace"))


def differences(
    what: Start, project: Project, place: Path, versions: Mapping[str, str]
) -> list[str]:
    """Start the ranks of a job in both ways; return how they differ, but for what may differ."""
    pairs = plans(_filled(what.job), project, versions)
    env = {
        "PATH": "/usr/bin:/bin", "HOME": str(place), "LANG": "C.UTF-8", "WORLD_SIZE": "9",
        "http_proxy": "http://proxy:3128", "HTTP_PROXY": "http://other:1", "lower_case": "x",
        "PYTHONPATH": ":inherited::",
    }  # fmt: skip
    port = free_port()
    starts = [
        start([pair[way] for pair in pairs], place / name, port, env)
        for way, name in enumerate(("launcher", "direct"))
    ]
    theirs, ours = starts
    lines = [f"exit code {code}: {s.output[-1500:]}" for s in starts for code in s.codes if code]
    if theirs.ranks.keys() != ours.ranks.keys():
        lines.append(f"ranks {[*theirs.ranks]} are {[*ours.ranks]}")
    for number in theirs.ranks.keys() & ours.ranks.keys():
        before, after = (_flat(some, number, place) for some in starts)
        lines += _between(number, before, after, what.different)
    return lines


def _flat(start: Ranks, number: str, place: Path) -> dict[str, Any]:
    """Return what a rank told, each part by itself, with one name for both places."""
    text = json.dumps(start.ranks[number])
    for name in ("launcher", "direct"):
        text = text.replace(str(place / name), "PLACE")
    answer: dict[str, Any] = json.loads(text)
    parts = {f"${name}": value for name, value in answer.pop("env").items()}
    parts |= {f"status {name}": value for name, value in answer.pop("status").items()}
    return {**answer, **parts}


def _between(
    number: str, theirs: Mapping[str, Any], ours: Mapping[str, Any], different: frozenset[str]
) -> list[str]:
    return [
        f"rank {number}: {name}: {theirs.get(name)!r} is {ours.get(name)!r}"
        for name in sorted({*theirs, *ours})
        if theirs.get(name) != ours.get(name) and name.removeprefix("$") not in different
    ]
