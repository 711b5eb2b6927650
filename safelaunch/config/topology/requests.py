"""Where what is asked of each engine is read: its block, with what the job says besides."""

from __future__ import annotations

import importlib
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, cast

from safelaunch.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.config.yaml_io.node import Node
    from safelaunch.model import EngineBlock, Host, Origin, Profile

# engine -> its module in this package
_MODULES = MappingProxyType({"slurm": "slurm", "kubernetes": "kubernetes", "ray": "ray"})


class Reader(Protocol):
    """What the module of an engine answers."""

    OWN_FILES: bool  # its machines have files of their own, which are not those of this one

    def entry(self, machines: Mapping[str, Host], /) -> Host:
        """Return the entry of a hosts file that describes the engine's machines."""

    def read(
        self,
        values: dict[str, Any],
        origins: Mapping[str, Origin],
        tree: Node,
        host: Host,
        /,
    ) -> EngineBlock:
        """Return what a job asks of the engine. Raises ConfigError."""

    def project(self, request: EngineBlock, where: Origin, /) -> str:
        """Return the project's folder on machines with files of their own. Raises ConfigError."""

    def for_profile(
        self,
        request: EngineBlock,
        profile: Profile | None,
        values: Mapping[str, Any],
        origins: Mapping[str, Origin],
        /,
    ) -> EngineBlock:
        """Return the request for the accelerator of a profile. Raises ConfigError."""


@cache
def load(engine: str) -> Reader:
    """Return the answers of an engine's module. Raises ConfigError for an unknown engine."""
    if engine not in _MODULES:
        names = ", ".join(f"`{name}`" for name in _MODULES)
        hint = did_you_mean(engine, _MODULES) or f"known: {names}"
        raise ConfigError(f"unknown engine `{engine}`", where="--on", hint=hint)
    return cast("Reader", importlib.import_module(f"safelaunch.config.topology.{_MODULES[engine]}"))
