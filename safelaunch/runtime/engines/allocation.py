"""The machines that an engine has given to a run, seen from one of them."""

from __future__ import annotations

from types import MappingProxyType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class JoinError(Exception):
    """A machine cannot join the run; the message says why, for the job's output."""


class Allocation:
    """The machines of a run, seen from one of them."""

    def __init__(
        self,
        nodes: Sequence[str],
        node: int,
        life: int,
        cores: int | None,
        address: Callable[[str], str | None],
        *,
        job: str = "",
        environ: Mapping[str, str] = MappingProxyType({}),
        part: int | None = None,
    ) -> None:
        self.nodes = nodes  # their names, node 0 first
        self.node = node  # number of this one
        self.life = life  # how often the engine has started the job again
        self.cores = cores  # that the job has on this machine; None: not stated
        self.address = address  # the engine's address of a node, where the name has none
        self.job = job  # what the engine calls its job
        self.part = part  # of a run in parts the one that this job is
        self.environ = environ  # variables of the engine's, over those of the caller
