"""Job files as nobody should write them; planning one may end in our errors, and in no others.

Used by tests/unit/config/test_fuzzed_jobs.py with few and by `scripts/bench fuzz` with many.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from pathlib import Path

import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from safelaunch.config.resolve import Flags, resolve_file
from safelaunch.config.schema.blocks import HANG, RECOVERY, SUCCESS
from safelaunch.config.schema.files import JOB
from safelaunch.errors import SafelaunchError
from safelaunch.launchers import NAMES
from safelaunch.plan.build import bind, make_plan
from safelaunch.plan.serialize import plan_json
from safelaunch.start.scripts import restart_scripts

VALID = {
    "name": "fuzz",
    "profile": "rtx5090",
    "launcher": "accelerate",
    "script": "train.py",
    "args": {"lr": "1e-3", "seed": 1},
    "processes": 2,
    "gpus": [0, 1],
    "mixed_precision": "bf16",
    "launcher_args": {"monitor_interval": 1},
    "workdir": ".",
    "pythonpath": ["."],
    "env": {"A": "1", "PATH": {"prepend": "/x"}, "B": None},
    "env_from": ["HF_TOKEN"],
    "inherit": "all",
    "setup": ["true"],
    "log": "logs/{name}.log",
    "capture": True,
    "logs": ["out/*.log"],
    "log_cap": "1GiB",
    "max_duration": "2h",
    "progress": r"step (?P<step>\d+)",
    "success": {"artifacts": ["out/*.pt"], "min_steps": 2},
    "hang": {"action": "restart", "floor": "1m"},
    "recovery": {
        "classes": {"port-in-use": "stop"},
        "checkpoint": "out/*.pt",
        "resume_args": {"resume": True},
        "fingerprint": ["seed"],
        "ladder": True,
    },
    "smoke": {"args": {"max_steps": 2}, "success": {"min_steps": 1}},
}
KEYS = [key.name for key in JOB.keys]
WORDS = [
    "", "null", "true", "auto", "all", "none", "-1", "0", "1", "2", "999999999", "1e999", "a:b",
    "train.py", ".", "..", "/", "job.yaml", "base.yaml", "bf16", "cpu", "h800", "rtx5090", "0.2",
    "1-spmd", "sft", "rollout", "RANK", "PATH", "UID", "A-B", "hf_" + "a" * 30, "--x", "-m", "$x",
    "{time}", "{x}", "\r", "\0", "\n", "\t", "é", "\U0001f680", "\x7f", "x" * 140_000, "1" * 400,
    "GPU-1", "config", "prepend", "HF_TOKEN", "--num_processes", "deepspeed_config_file",
    "use_fsdp", "scheduler", "ray", "off", "stop", "90s", "1d12h", "-5m", "64MiB", "(?P<step>x)",
    "(", "[", "(?P<x>y)", "x{99999999999}", "(?i)", "~/x", "../../x", "*/../..", "C:\\x", "hang",
    *NAMES,
]  # fmt: skip
TEXTS = st.one_of(st.sampled_from(WORDS), st.text(max_size=12))
SCALARS = st.one_of(TEXTS, st.none(), st.booleans(), st.integers(-3, 10**12), st.floats())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(TEXTS, st.sampled_from(KEYS)), inner, max_size=4),
    ),
    max_leaves=8,
)
# a valid job with keys replaced, added and left out
MUTATED = st.builds(
    lambda changes, removed: {k: v for k, v in {**VALID, **changes}.items() if k not in removed},
    st.dictionaries(st.one_of(st.sampled_from(KEYS), TEXTS), VALUES, max_size=4),
    st.sets(st.sampled_from(KEYS), max_size=4),
)
PART = st.one_of(
    SCALARS,
    st.sampled_from([1, True, "30s", "out/*.pt", "restart", "stop", "x", [], {}, ["--x"]]),
    st.dictionaries(st.sampled_from(["killed", "hang", "args", "x"]), SCALARS, max_size=2),
)


def parts(names: list[str]) -> st.SearchStrategy[dict[str, object]]:
    """Return blocks with some of these keys."""
    return st.dictionaries(st.sampled_from(names), PART, max_size=3)


# what a key may well hold: most of these are planned to the end
NEAR = {
    "profile": st.sampled_from(["cpu", "h800", "rtx4090", "a100", "nope", None]),
    "launcher": st.sampled_from(tuple(NAMES)),
    "version": st.sampled_from(["0.2", "0.3", "1", "1-spmd", None]),
    "script": st.sampled_from(["train.py", "other.py", None]),
    "module": st.sampled_from(["pkg.train", "json.tool", None]),
    "command": st.lists(st.sampled_from(["sft", "rollout", "echo", "ppo-math", ""]), max_size=2),
    "args": st.one_of(
        st.lists(TEXTS, max_size=3), st.dictionaries(st.sampled_from(WORDS), SCALARS, max_size=3)
    ),
    "launcher_args": st.dictionaries(
        st.sampled_from(
            ["use_fsdp", "config_file", "tee", "scheduler", "standalone", "m", "nproc"]
        ),
        SCALARS,
        max_size=2,
    ),
    "processes": st.sampled_from([1, 2, 8, None]),
    "gpus": st.sampled_from(["auto", 1, 2, 8, [3, 1], None]),
    "nodes": st.sampled_from([1, 2, None]),
    "hosts": st.sampled_from([["a"], ["a", "b"], None]),
    "env": st.dictionaries(st.sampled_from(["A", "PATH", "NCCL_CUMEM_ENABLE", "RANK"]), SCALARS),
    "inherit": st.sampled_from(["none", ["A", "B_*"], None]),
    "pythonpath": st.lists(TEXTS, max_size=2),
    "extends": st.sampled_from(["base.yaml", ["base.yaml", "base.yaml"], "job.yaml"]),
    "force": st.sampled_from([["NCCL_CUMEM_ENABLE"], []]),
    "max_duration": st.sampled_from(["90s", "1.5h", "9" * 400 + "d", "0s", 5, None]),
    "log_cap": st.sampled_from(["64MiB", "1KiB", "9" * 400 + "TiB", None]),
    "progress": st.one_of(TEXTS, st.lists(TEXTS, max_size=2)),
    "success": parts([key.name for key in SUCCESS.keys]),
    "hang": st.one_of(st.just("off"), parts([key.name for key in HANG.keys])),
    "recovery": parts([key.name for key in RECOVERY.keys]),
    "smoke": st.dictionaries(st.sampled_from(KEYS), SCALARS, max_size=3),
}
CHANGED = st.builds(lambda changes: {**VALID, **changes}, st.fixed_dictionaries({}, optional=NEAR))
SWAPPED = st.sampled_from(sorted(NEAR)).flatmap(
    lambda key: NEAR[key].map(lambda value: {**VALID, key: value})
)
FRAGMENTS = [
    "launcher: torchrun\n", "script: train.py\n", "processes: 2\n", "args:\n", "  lr: 1\n",
    "  - a\n", "env: ", "{A: 1}", "{A: ", "[", "]", "}", "&a ", "*a", "<<: ", "!!int ", "? ",
    ": ", "- ", "\n", "\t", "---\n", "...\n", "%YAML 1.1\n", "|\n", ">-\n", "'", '"', "\\x",
    "# c\n", "\r\n", "\ufeff", "extends: ", "base.yaml\n", "job.yaml\n", "\x85", "\u2028", "@",
    "`", "  " * 40, "[" * 70,
]  # fmt: skip
JOBS = st.one_of(
    SWAPPED.map(lambda job: yaml.safe_dump(job).encode()),
    CHANGED.map(lambda job: yaml.safe_dump(job).encode()),
    MUTATED.map(lambda job: yaml.safe_dump(job, allow_unicode=True).encode()),
    VALUES.map(lambda job: yaml.safe_dump(job).encode()),
    st.lists(st.sampled_from(FRAGMENTS), max_size=14).map(lambda parts: "".join(parts).encode()),
    st.tuples(st.binary(max_size=40), st.integers(0, 300)).map(
        lambda cut: yaml.safe_dump(VALID).encode()[: cut[1]] + cut[0]
    ),
    st.binary(max_size=200),
)
PATHS = ["env.A", "args.x", "hang.floor", "recovery.ladder", "recovery.classes.hang", "success.x"]
PLAIN = st.booleans().map(lambda on: Flags(debug=on, workarounds=not on, smoke=on))
FLAGS = PLAIN | st.builds(
    Flags,
    profile=st.sampled_from([None, None, "cpu", "h800", "nope", "./job.yaml", "."]),
    sets=st.lists(
        st.builds("{}{}{}".format, st.sampled_from([*KEYS, *PATHS]), st.just("="), TEXTS),
        max_size=2,
    ).map(tuple),
    hosts_file=st.sampled_from([None, None, None, "job.yaml", "hosts.yaml"]),
    ladder=st.sampled_from([None, None, 0, 3, 9]),
    workarounds=st.booleans(),
    debug=st.booleans(),
    smoke=st.booleans(),
    project_root=st.sampled_from([None, "/golden"]),
)


def lay_out(folder: Path) -> None:
    """Write what the generated jobs may refer to."""
    (folder / "pyproject.toml").touch()
    (folder / "train.py").touch()
    (folder / "base.yaml").write_text("launcher: torchrun\nprocesses: 2\nargs: {a: 1}\n")
    (folder / "hosts.yaml").write_text("hosts: {localhost: {profile: cpu}, a: {}, b: {}}\n")


def plan_job(folder: Path, job: bytes, flags: Flags) -> bool:
    """Plan a job as a dry-run does; False where it is refused in our own words."""
    (folder / "job.yaml").write_bytes(job)
    try:
        plan = make_plan(resolve_file("job.yaml", flags, str(folder)))
    except SafelaunchError as error:
        str(error).encode(errors="backslashreplace")
        return False
    bound = bind(plan, {})
    plan_json(bound)
    restart_scripts.scripts(plan, {}, restart_scripts.spec(bound, "fuzz"))
    return True


def main(count: int) -> int:
    """Plan so many fuzzed jobs, print how many came through, and return how many did not."""
    done: list[bool] = []
    broken: list[str] = []
    with tempfile.TemporaryDirectory(prefix="safelaunch-fuzz-") as name:
        folder = Path(name)
        lay_out(folder)

        @settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )
        @given(JOBS, FLAGS)
        def run(job: bytes, flags: Flags) -> None:
            try:
                plan_job(folder, job, flags)
            except Exception:  # noqa: BLE001 - what must not happen is what is counted
                broken.append(f"{job!r}\n{flags}\n{traceback.format_exc()}")
            done.append(True)

        while len(done) < count:
            run()
    for report in broken[:5]:
        print(report)  # noqa: T201 - a program of its own too
    print(f"{len(done) - len(broken):,}/{len(done):,} without a traceback")  # noqa: T201
    return len(broken)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 1000) > 0)
