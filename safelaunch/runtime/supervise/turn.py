"""What a run waits for before its first attempt, and what of that runs beside the job."""

# ruff: noqa: PLC0415 - few runs wait

from __future__ import annotations

from safelaunch.runtime import preconditions
from safelaunch.runtime.supervise.node_run import free_port

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.runtime.preconditions import Precondition
    from safelaunch.runtime.records import ServiceStatus
    from safelaunch.runtime.supervise.node_run import NodeRun


class Turn:
    """The preconditions of a run; `rest` waits, and returns why the run is stopped, or ""."""

    def __init__(self, node: NodeRun) -> None:
        self.node = node
        self.preconditions = preconditions.load(node.run, node.dir, node.umask)

    def wait(
        self,
        rest: Callable[[float], str],
        number: int,
        waits: Sequence[Precondition] | None = None,
    ) -> str:
        """Return "" once all are met, or `waits`, else why the run was stopped meanwhile.

        `number` is the attempt that follows. Raises PreconditionFailed.
        """
        from safelaunch.runtime.preconditions import wait

        waits = self.preconditions if waits is None else waits
        for precondition in waits:
            precondition.prepare_attempt(self.node.nodes, number)

        def show(reason: str) -> None:
            self._note_services()
            self.node.journal.show_wait(reason)

        stop_reason = wait.await_all(waits, show, rest)
        self._note_services()
        return stop_reason

    def renew(self) -> list[Precondition]:
        """Return those that a later attempt has to wait for again."""
        return [again for again in self.preconditions if again.renew()]

    def fill_placeholders(self, number: int) -> None:
        """Write the scripts with the values that are known only now. Raises OSError, ValueError."""
        values = {"port": str(free_port(number) or "")}
        for precondition in self.preconditions:
            values.update(precondition.values())
        if self.node.run.placeholders:
            from safelaunch.runtime.start import placeholders

            placeholders.fill(self.node.dir, self.node.run.placeholders, values)

    def close(self) -> None:
        """Give back what they hold, and end what runs beside the job, in reverse."""
        for precondition in reversed(self.preconditions):
            precondition.close()
        # not saved: the status has the state of the end, which is not recorded yet
        status = self.node.journal.status
        status.services = self._service_statuses() or status.services

    def _service_statuses(self) -> list[ServiceStatus]:
        return [status for waits in self.preconditions for status in waits.statuses()]

    def _note_services(self) -> None:
        """Record how the services of the job are."""
        journal, statuses = self.node.journal, self._service_statuses()
        shown = [status.to_json() for status in statuses]
        if shown != [status.to_json() for status in journal.status.services]:
            journal.status.services = statuses
            journal.save()
