"""Brings up Ray on one node of a run, runs the job's program on node 0, and takes Ray down again.

    python -I -S -B start_cluster.py --node=K --nodes=N --address=A --port=P --cpus=C [-- WORD...]

Node 0 starts Ray's head, waits until all nodes are alive in the cluster, and runs the words, whose
RAY_ADDRESS the launch script has set. The other nodes join the head, and stay until it is gone. So
the exit code of node 0 is that of the program, and 0 on the others. TERM, INT, HUP and QUIT go to
the program; Ray is ended after it, on each node by itself: never by `ray stop`, which ends all that
have Ray's names. What Ray died of is written to ray/attempt-<n>/ in the directory of the node.

It is run by the job's own Python, which has Ray.
"""

from __future__ import annotations

import os
import signal
import sys
import time

# the package is three folders up, and nothing else is on the path
sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)))

from safelaunch.runtime.ranks import start_ranks
from safelaunch.runtime.ray_cluster import log_words
from safelaunch.runtime.ray_cluster.children import Children
from safelaunch.runtime.ray_cluster.node import PATIENCE, RayError, RayNode
from safelaunch.runtime.ray_cluster.options import ClusterOptions, evidence_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

START_LIMIT = 300.0  # seconds until all nodes are alive: Ray's packages may lie on a slow disk
PEER_GRACE = 6.0  # seconds in which another node may say that it has lost its Ray
GRACE = 5.0  # seconds for a program that has lost its Ray, and again after TERM
HEAD_EVERY = 1.0  # seconds between two looks whether the head is there
ABSENCES = 3  # looks in a row without it: then it has gone
CHECKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "await_nodes.py")


class Stopped(Exception):  # noqa: N818 - no error
    """A signal has asked for the end."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def main(arguments: Sequence[str]) -> int:
    """Return the exit code; of a signal, to this process or the program, its negative number."""
    options, children = ClusterOptions.parse(arguments), Children()
    evidence = evidence_folder(os.environ)
    node = RayNode(options, children)
    code, patience, is_stopped = 1, PATIENCE, False
    try:
        node.prepare()
        code = lead(node, children) if options.node == 0 else follow(node, children)
    except Stopped as e:
        code, is_stopped = -e.signum, True
    except RayError as e:
        say(e.failure.what)
        record(e, evidence)
        for program in children.pids[:0:-1]:
            children.await_end(program, GRACE)  # it may show what it makes of that
        patience = 0.0  # what is left of a Ray that has failed has nothing to end in order
    finally:
        for program in children.pids[:0:-1]:  # the first one is Ray
            children.end(program, GRACE)
        node.end(patience)
        if code and evidence and not is_stopped:
            log_words.keep_logs(node.logs, node.log, evidence)
        node.remove_files()
    return code


def lead(node: RayNode, children: Children) -> int:
    """Run the program on node 0, once all nodes are there; return its exit code."""
    node.start()
    await_nodes(node, children)
    node.find_parts()  # before the program may miss one
    say(log_words.last_words(log_words.read(node.nodes_log)))
    program = children.start(node.options.words, os.environ)
    while children.code_of(program) is None:
        signum = children.wait()
        if signum:
            end_program(children, program, signum)
            raise Stopped(signum)
        node.check()
    code = children.code_of(program) or 0
    if code:
        await_cause(node, children)
    return code


def await_nodes(node: RayNode, children: Children) -> None:
    """Wait until all nodes are alive in the cluster. Raises RayError, and Stopped."""
    options = node.options
    words = [sys.executable, "-u", CHECKER, options.place, str(options.nodes), str(START_LIMIT)]
    checker = children.start(words, node.environment, node.nodes_log)
    deadline = time.monotonic() + START_LIMIT + GRACE  # it may hang in Ray
    try:
        while children.code_of(checker) is None and time.monotonic() < deadline:
            wait(children)
            node.check()
    finally:
        children.end(checker, GRACE)
    if children.code_of(checker) != 0:
        raise node.incomplete()


def await_cause(node: RayNode, children: Children) -> None:
    """Wait whether a program has failed because of Ray. Raises RayError, and Stopped.

    The node that has lost its Ray says so itself; then the supervisor ends this one.
    """
    deadline = time.monotonic() + (PEER_GRACE if node.options.nodes > 1 else 0.0)
    node.check()
    while time.monotonic() < deadline:
        wait(children)
        node.check()


def end_program(children: Children, program: int, signum: int) -> None:
    """Pass a signal on to the program, and wait for its end; the same one again kills it."""
    children.send(program, signum)
    while children.code_of(program) is None:
        again = children.wait()
        if again:
            children.send(program, signal.SIGKILL if again == signum else again)


def follow(node: RayNode, children: Children) -> int:
    """Join the head of node 0, and stay until it is gone."""
    deadline = time.monotonic() + START_LIMIT
    while not node.finds_head():
        wait(children)
        if time.monotonic() > deadline:
            raise node.without_head(START_LIMIT)
    node.start()
    say(f"joins the Ray of node 0 at {node.options.place}")
    absences, next_look = 0, time.monotonic()
    while absences < ABSENCES:
        wait(children)
        node.check()
        if time.monotonic() >= next_look:
            absences = absences + 1 if node.misses_head() else 0
            next_look = time.monotonic() + HEAD_EVERY
    return 0


def wait(children: Children) -> None:
    """Wait a moment, or until a child ends. Raises Stopped."""
    signum = children.wait()
    if signum:
        raise Stopped(signum)


def record(error: RayError, evidence: str) -> None:
    """Write down how Ray has failed, for the supervisor; the log has it too."""
    try:
        if evidence:
            os.makedirs(evidence, 0o700, exist_ok=True)
            error.failure.write(evidence)
    except OSError as e:
        say(f"cannot write {evidence}: {e}")


def say(text: str) -> None:
    """Print a line that the log of the run keeps."""
    sys.stdout.write(f"safelaunch: {text}\n")
    sys.stdout.flush()


def end_as(code: int) -> int:
    """Return an exit code, or end this process by the signal that has ended its program."""
    if code >= 0:
        return code
    import resource  # noqa: PLC0415 - Python may be built without it; then a core file is left

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # nobody wants to look into this process
    if -code == signal.SIGKILL:  # has no default that could be set
        os.kill(os.getpid(), signal.SIGKILL)
    return start_ranks.die(-code)


if __name__ == "__main__":
    sys.exit(end_as(main(sys.argv[1:])))
