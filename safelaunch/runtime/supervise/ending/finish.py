"""The end of a node's run: what is left is ended, the end is recorded, and what follows it runs."""

# ruff: noqa: PLC0415 - what few runs have

from __future__ import annotations

import os
import time

from safelaunch.runtime import cgroup, json_files
from safelaunch.runtime.ranks import fork_servers
from safelaunch.runtime.records import Failure, JobEnvironment, StopRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from safelaunch.runtime.supervise.attempts.attempt import Attempt
    from safelaunch.runtime.supervise.node_run import NodeRun
    from safelaunch.runtime.supervise.turn import Turn

SAVE_PATIENCE = 3600  # seconds in which the end is written again and again to a disk that is full
SERVER_PATIENCE = 5.0  # seconds for a process that was killed


class Finish:
    """The end of a run whose last attempt is over, or that never had one."""

    def __init__(self, node: NodeRun, current: Attempt, turn: Turn) -> None:
        self.node = node
        self.run, self.journal = node.run, node.journal
        self.current = current
        self.turn = turn
        self.signals = 0  # those that came before its first wait

    def execute(self) -> None:
        """Write the last lines and the end."""
        self._end_fork_servers()
        self.signals = len(self.node.control.signals)
        self._close_turn()
        self._record_proof()
        self._release()
        self._join_ends()
        has_more = self._announce_ending()
        self._write_end()
        if not has_more:
            self._clean_up()
        self._remove_environment()
        nodes = self.node.nodes
        if nodes is not None:
            if nodes.record_ends(self.node.sent, self._is_asked):
                self.journal.save_end()
            is_bad = self.journal.status.state != "succeeded"
            nodes.close(self._is_asked, is_bad=is_bad, attempt=self.node.sent)
        if has_more:
            self._follow_end()

    def _is_asked(self) -> bool:
        """Whether a signal has come since: nothing is waited for any more."""
        return len(self.node.control.signals) > self.signals

    def _end_fork_servers(self) -> None:
        """End what has waited for a next attempt, and look again whether anything is left."""
        left, deadline = fork_servers.end(self.node.dir), time.monotonic() + SERVER_PATIENCE
        if not left:
            return
        self.current.has_children = True
        while time.monotonic() < deadline:
            try:
                pid = os.waitpid(-1, os.WNOHANG)[0]
            except ChildProcessError:
                self.current.has_children = False
                return
            if pid in left:
                left.remove(pid)
            elif not pid and not left:
                return
            elif not pid:
                time.sleep(0.002)
        self.journal.status.unkillable = left  # in a file system that does not answer

    def _close_turn(self) -> None:
        """End what runs beside the job, and look again whether anything is left."""
        if not self.turn.preconditions:
            return
        nodes, has_succeeded = self.node.nodes, self.journal.status.state == "succeeded"
        if nodes is not None and self.run.services and has_succeeded:
            nodes.await_ends(self.node.sent, self._is_asked)  # their ranks need services of this
        self.turn.close()
        deadline = time.monotonic() + SERVER_PATIENCE
        try:  # what writes the log of a service ends a moment after its supervisor
            while time.monotonic() < deadline:
                if not os.waitpid(-1, os.WNOHANG)[0]:
                    time.sleep(0.002)
        except ChildProcessError:
            self.current.has_children = False

    def _record_proof(self) -> None:
        """Record whether nothing is left, and which ranks were not seen."""
        status = self.journal.status
        if self.current.has_children and not status.unkillable:
            # another user's, under hidepid: wait() shows that there is one, /proc does not
            self.journal.warn("a process is left that this user cannot see")
        if self.node.subreaper and not self.current.has_children and not status.unkillable:
            status.proof = "wait"
        if status.state == "succeeded":  # any other end has a cause of its own
            missing = self.journal.missing_ranks(self.current.number)
            if missing:
                self.journal.warn(f"{missing}: did a process train alone?")

    def _release(self) -> None:
        """Give back what the run has taken of the machine, but its processes."""
        status = self.journal.status
        # where another node or life may still write into it, the next sync does this
        is_last = status.state != "pending" and not self.run.tree_shared
        if self.run.tree and is_last and not status.unkillable:
            self._settle_tree(self.run.tree)
        status.waiting = status.waits_for = None
        if self.node.cards is not None:
            self.node.cards.close()

    def _settle_tree(self, tree: str) -> None:
        """Move what the run has made in its own copy of the project into the project's folder."""
        try:
            from safelaunch.runtime.transfer import tree_links

            base = os.path.abspath(os.path.join(self.node.dir, *[os.pardir] * 3))
            tree_links.settle(os.fsencode(tree), base)
        except Exception as e:  # noqa: BLE001 - no fault of ours may hide how the job ended
            self.journal.broken("moving its outputs into the project's folder", e)

    def _join_ends(self) -> None:
        """Record how the run has ended on all nodes, where those were started by hand.

        It goes on until the last one has ended, does not answer, or a signal comes.
        """
        nodes, status = self.node.nodes, self.journal.status
        if nodes is None or nodes.is_alone or not nodes.members.can_join:
            return
        ended = status.copy()
        try:
            from safelaunch.runtime.nodes import joint_end

            others = [nodes.name(n) for n in nodes.members.hosts if n != nodes.members.own]
            status.node_end = nodes.summary(nodes.members.own, ended.state, ended.exit_code)
            status.state, status.exit_code = "running", None
            status.reason = f"this node has ended ({ended.state}), not yet {', '.join(others)}"
            self.journal.save()
            ends = nodes.await_ends(self.node.sent, self._is_asked)
            failure = Failure.read(self.node.dir) if ended.state == "failed" else None
            run_failure = joint_end.complete(ended, failure, nodes.members, ends)
            if run_failure is not None:
                self.journal.fail(run_failure)
        except Exception as e:  # noqa: BLE001 - no fault of ours may hide how the job ended
            self.journal.broken("agreement of the nodes", e)
        ended.nodes, ended.warning = status.nodes, ended.warning or status.warning
        self.journal.status = ended

    def _announce_ending(self) -> bool:
        """Whether commands follow the end of the run, which is that of all its nodes."""
        if self.run.ending is None:
            return False
        from safelaunch.runtime.supervise.ending import sequence

        nodes = self.node.nodes
        if nodes is not None and not nodes.is_alone and not self.run.node:
            nodes.await_ends(self.node.sent, self._is_asked)
        return sequence.announce(self.journal)

    def _write_end(self) -> None:
        """Write the end, on a full disk again and again."""
        status = self.journal.status
        # the clock may have been set meanwhile: the elapsed time is of a monotonic one
        if status.state != "pending":
            status.ended_at = time.time()
        status.elapsed = round(time.monotonic() - self.node.began, 3)
        self.journal.restore(self.current.living)
        self.journal.event("ended", state=status.state, exit_code=status.exit_code)
        self.journal.pane.show(f"\r\n[safelaunch] {self.run.id}: {status.state}\r\n".encode())
        self.journal.pane.finish()
        before_save = len(self.node.control.signals)
        for _ in range(SAVE_PATIENCE):
            # a signal now asks again to stop, and nothing else is left to do
            if self.journal.save_end() or len(self.node.control.signals) > before_save:
                break
            time.sleep(1.0)

    def _remove_environment(self) -> None:
        """Remove the job's environment, which may hold secrets, once no life can follow.

        After a signal without a request to stop, the engine may start the run again.
        """
        status = self.journal.status
        is_final = status.state in ("succeeded", "failed") or not self.node.engine.may_restart
        if self.run.engine and (is_final or StopRequest.read(self.node.dir) is not None):
            json_files.remove(os.path.join(self.node.dir, JobEnvironment.FILE))

    def _follow_end(self) -> None:
        """Run what follows the end; no fault in it changes how the run has ended."""
        from safelaunch.runtime.supervise.ending import sequence

        try:
            sequence.execute(self.journal, self.node.control, self.node.umask)
        except Exception as e:  # noqa: BLE001 - of any kind: the end is recorded
            self.journal.broken("running of the commands at the end", e)
            sequence.abandon(self.journal, e)
        self._clean_up()

    def _clean_up(self) -> None:
        """Remove the control group, and what the backend leaves behind."""
        from safelaunch.runtime import backends

        if self.journal.status.cgroup:
            cgroup.remove(self.journal.status.cgroup)
        backends.clean_up(self.run)
