"""Probes of this machine before a start, which run beside the imports and checks of the client."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from safelaunch.errors import StartError
from safelaunch.runtime import backends, commands
from safelaunch.start import preflight
from safelaunch.start.preflight import MachineReport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.model import NodePlan


class LocalProbe:
    """The probes of a node's machine and interpreter, from their start to what they report."""

    def __init__(self, node: NodePlan, environ: Mapping[str, str]) -> None:
        self.environ = dict(environ)
        self.backends = backends.start_probes(self.environ)
        self.python = ""
        self._error: StartError | None = None
        try:
            self.python = preflight.find_interpreter(node, environ)
        except StartError as e:  # raised by `report`: a check may explain it better
            self._error = e
            return
        seed = os.urandom(4).hex()
        words = [*preflight.binding(node), self.python, *preflight.probe_command(seed, node)]
        self._probe = commands.RunningCommand(words, self.environ)

    def report(self, base: str) -> MachineReport:
        """Return what the machine reports; `base` is safelaunch's folder. Raises StartError."""
        if self._error is not None:
            raise self._error
        probe, version = self._probe.result(), ""
        if probe.code != 0:
            version = commands.run([self.python, "-V"], environ=self.environ).last_line
        bash = shutil.which("bash", path=self.environ.get("PATH"))
        home = self.environ.get("HOME", "")
        return MachineReport(home, base, self.environ, self.python, bash, probe, version)
