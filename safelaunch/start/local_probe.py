"""Probes of this machine before a start, which run beside the imports and checks of the client."""

# ruff: noqa: PLC0415 - containers: only for jobs that run in one

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from safelaunch.errors import StartError
from safelaunch.runtime import backends, commands
from safelaunch.runtime.commands import CommandResult
from safelaunch.runtime.home import home
from safelaunch.runtime.start import start_probe
from safelaunch.start import interpreter_cache, preflight
from safelaunch.start.preflight import MachineReport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.model import NodePlan


class LocalProbe:
    """The probes of a node's machine and interpreter, from their start to what they report."""

    def __init__(
        self, node: NodePlan, environ: Mapping[str, str], *, has_backend: bool = True
    ) -> None:
        self.environ = dict(environ)
        # an engine starts the supervisors itself
        self.backends = backends.start_probes(self.environ) if has_backend else {}
        self.python = ""
        self._node = node
        self._error: StartError | None = None
        self._facts: dict[str, str] | None = None
        if node.container is not None:  # its interpreter is the image's
            return
        try:
            self.python = preflight.find_interpreter(node, environ)
        except StartError as e:  # raised by `report`: a check may explain it better
            self._error = e
            return
        seed = os.urandom(4).hex()
        binding = preflight.binding(node)
        try:
            self._home = home(environ)
        except ValueError:  # the start says so
            self._home = ""
        if self._home and not binding:
            self._facts = interpreter_cache.load(self._home, self.python, self.environ)
        if self._facts is not None:
            self._arguments = preflight.probe_arguments(seed, node)
            return
        words = [*binding, self.python, *preflight.probe_command(seed, node)]
        self._probe = commands.RunningCommand(words, self.environ)

    def _result(self) -> CommandResult:
        """Return what the probe prints, from the interpreter or with its cached facts."""
        if self._facts is not None:
            lines = start_probe.report(self._arguments, self._facts, self.environ)
            return CommandResult(0, "\n".join(lines), "")
        result = self._probe.result()
        if result.code == 0 and self._home:
            values = dict(line.split(" ", 1) for line in result.out.splitlines() if " " in line)
            interpreter_cache.save(self._home, self.python, self.environ, values)
        return result

    def report(self, base: str) -> MachineReport:
        """Return what the machine reports; `base` is safelaunch's folder. Raises StartError."""
        if self._error is not None:
            raise self._error
        if self._node.container is not None:
            return self._container_report(base)
        probe, version = self._result(), ""
        if probe.code != 0:
            version = commands.run([self.python, "-V"], environ=self.environ).last_line
        bash = shutil.which("bash", path=self.environ.get("PATH"))
        home = self.environ.get("HOME", "")
        return MachineReport(home, base, self.environ, self.python, bash, probe, version)

    def _container_report(self, base: str) -> MachineReport:
        """Return what the machine reports by a container of the job's image. Raises Refused."""
        from safelaunch.runtime.containers.image_probe import probe_image
        from safelaunch.start import container

        home, seed = self.environ.get("HOME", ""), os.urandom(4).hex()
        spec, arguments = container.probe_request(self._node, seed, home, base)
        report = probe_image(spec, arguments, f"safelaunch-{seed}", self.environ)
        return container.machine_report(self._node, report, home, base)
