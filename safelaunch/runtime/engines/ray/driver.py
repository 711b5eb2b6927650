"""Runs as the job of a Ray: asks it for nodes, and starts a supervisor on each through an actor.

    python driver.py --nodes N --bundle JSON --strategy WORD --limit SECONDS --python PATH FOLDER

Its exit code says how the run has ended. It imports Ray, and nothing of safelaunch: the machine
needs none. What it prints is in ray.log of the run's folder too.
"""

# ruff: noqa: PLC0415 - only the interpreter of Ray has it

from __future__ import annotations

import argparse
import json
import os
import sys
import time

PLACE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != PLACE]  # its modules are ours
JOIN = os.path.join(os.path.dirname(PLACE), "join.py")
LIFELINE = os.path.join(PLACE, "lifeline.py")
CHOSEN = "SAFELAUNCH_RAY_PYTHON"  # set once the interpreter of Ray runs this
FAILED, STOPPED = 1, 143  # as runtime/engines/exit_codes.py has them
START_LIMIT = 180.0  # seconds in which the workers of all nodes start
SLICE = 1.0  # seconds between two looks for a request to stop
MOST_PARENTS = 8

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def main(argv: Sequence[str]) -> int:
    """Return the exit code of the run."""
    options = _options(argv)
    python = _python_of_ray()
    if python and python != sys.executable and CHOSEN not in os.environ:
        os.environ[CHOSEN] = python
        os.execv(python, [python, "-B", os.path.abspath(__file__), *argv])  # noqa: S606
    try:
        import ray
    except ImportError as e:
        return _say(options, f"{sys.executable} has no Ray: {e}")
    if not os.access(options.folder, os.W_OK):
        return _say(options, f"this user, {os.getuid()}, cannot write into {options.folder}")
    ray.init(logging_level="warning")
    bundle = json.loads(options.bundle)
    group = ray.util.placement_group([bundle] * options.nodes, strategy=options.strategy)
    deadline = time.monotonic() + options.limit
    while not group.wait(timeout_seconds=SLICE):
        if _is_stopped(options):
            return STOPPED
        if time.monotonic() > deadline:
            return _say(options, _no_place(ray, options, bundle))
    return STOPPED if _is_stopped(options) else _run(ray, options, group, bundle)


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--bundle", required=True)
    parser.add_argument("--strategy", required=True)
    parser.add_argument("--limit", type=float, required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("folder")
    return parser.parse_args(argv)


def _say(options: argparse.Namespace, text: str) -> int:
    """Print why the job fails, for Ray's message and for the run's own log."""
    print(f"safelaunch: {text}", file=sys.stderr, flush=True)
    try:
        with open(os.path.join(options.folder, "ray.log"), "a", encoding="utf-8") as log:
            log.write(f"safelaunch: {text}\n")
    except OSError:
        pass  # Ray has it
    return FAILED


def _is_stopped(options: argparse.Namespace) -> bool:
    return os.path.exists(os.path.join(options.folder, "node-0", "stop.json"))


def _python_of_ray() -> str:
    """Return the interpreter of Ray's workers, by the raylet that has started this; else "".

    PATH is that of whoever started Ray, and need not have it; its version must be the same.
    """
    pid = os.getppid()
    for _ in range(MOST_PARENTS):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().decode("utf-8", "replace").split("\0")
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return ""
        for word in words:
            if word.startswith("--python_worker_command="):
                return word.partition("=")[2].split(" ")[0]
    return ""


def _no_place(ray: Any, options: argparse.Namespace, bundle: dict[str, float]) -> str:
    """Return that Ray has no place for the nodes, and what is free."""
    # no public function says what is free by node
    free = ray._private.state.available_resources_per_node()  # noqa: SLF001
    alive = [node for node in ray.nodes() if node["Alive"]]
    rows = []
    for node in alive:
        own, total = free.get(node["NodeID"], {}), node["Resources"]
        shown = [f"{key} {own.get(key, 0):g} of {total.get(key, 0):g}" for key in sorted(bundle)]
        rows.append(f"{node['NodeManagerAddress']} {', '.join(shown)}")
    demand = ", ".join(f"{key} {count:g}" for key, count in sorted(bundle.items()))
    return (
        f"no place within {options.limit:g} s for {options.nodes} x ({demand}),"
        f" {options.strategy}; free on {len(alive)} nodes: {'; '.join(rows)}"
    )


def _run(ray: Any, options: argparse.Namespace, group: Any, bundle: dict[str, float]) -> int:
    """Start a supervisor on each node, and return the exit code of all."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Strategy

    own = {key: count for key, count in bundle.items() if key not in ("CPU", "GPU")}
    actors = [
        ray.remote(SupervisorActor)
        .options(
            num_cpus=bundle.get("CPU", 0),
            num_gpus=bundle.get("GPU", 0),
            resources=own,
            max_restarts=0,
            scheduling_strategy=Strategy(group, placement_group_bundle_index=index),
        )
        .remote()
        for index in range(options.nodes)
    ]
    try:
        names = ray.get([actor.address.remote() for actor in actors], timeout=START_LIMIT)
    except ray.exceptions.RayError as e:
        return _say(options, f"no worker on a node that Ray has chosen: {_words(e)}")
    variables = {"SAFELAUNCH_RAY_NODES": ",".join(names)}
    if "CPU" in bundle:
        variables["SAFELAUNCH_RAY_CORES"] = f"{bundle['CPU']:g}"
    log = os.path.join(options.folder, "ray.log")
    start = [options.python, "-I", "-S", "-B"]
    argv = [*start, LIFELINE, log, *start, JOIN, options.folder]
    nodes = {
        actor.run.remote(argv, {**variables, "SAFELAUNCH_RAY_NODE": str(index)}): names[index]
        for index, actor in enumerate(actors)
    }
    codes = []
    while nodes:
        for done in ray.wait(list(nodes), num_returns=1)[0]:
            name = nodes.pop(done)
            try:
                codes.append(ray.get(done))
            except ray.exceptions.RayError as e:
                codes.append(_say(options, f"{name}: {_words(e)}"))
    failures = [code for code in codes if code not in (0, STOPPED)]
    return FAILED if failures else max(codes)


def _words(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


class SupervisorActor:
    """A node of the run: an actor, which holds the lifeline of the supervisor beside it."""

    def address(self) -> str:
        """Return Ray's name of this machine."""
        import ray

        return str(ray.util.get_node_ip_address())

    def run(self, argv: list[str], variables: dict[str, str]) -> int:
        """Start the supervisor, and return its exit code."""
        import subprocess

        lifeline, mine = os.pipe()
        result, theirs = os.pipe()
        try:
            environ = {**os.environ, **variables}
            subprocess.call(argv, stdin=lifeline, stdout=theirs, env=environ)
        finally:
            os.close(lifeline)
            os.close(theirs)
        with open(result, encoding="ascii") as file:
            text = file.read().strip()
        os.close(mine)
        return int(text) if text else FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
