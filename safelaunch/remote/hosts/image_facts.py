"""What is in an image, as the engine of a machine runs it: bash, Python, torch, NCCL."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from safelaunch.config.hosts_file import reader as hosts_file
from safelaunch.engines.slurm.container import NAMES
from safelaunch.errors import ConfigError, HostError
from safelaunch.model import Container, Origin, Slot, bind_word
from safelaunch.plan.container import HOME_FOLDER, bind_mounts, block_spec
from safelaunch.remote.parallel import together
from safelaunch.remote.session import load_hosts
from safelaunch.runtime.containers.image_probe import ContainerReport

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from safelaunch.remote.host_pool import HostPool
    from safelaunch.runtime.records import ContainerSpec

_NAME = "safelaunch-facts"
_PROBE = ("1", "/", "")  # of start_probe.py: a seed, the folder and the search path


def image_facts(
    image: str, python: str | None, home: str, path: str | None, environ: Mapping[str, str]
) -> dict[str, Any]:
    """Return what is in an image of this machine. Raises ConfigError."""
    block = _block(image, python, hosts_file.LOCAL, home, path)
    from safelaunch.runtime.containers.image_probe import probe_image  # noqa: PLC0415 - subprocess

    spec = _spec(block, environ.get("HOME", ""), home)
    report = probe_image(spec, _PROBE, f"{_NAME}-{os.getpid()}", environ)
    return _facts(hosts_file.LOCAL, image, report)


def image_facts_of_hosts(
    pool: HostPool, hosts: Sequence[str], image: str, python: str | None, home: str
) -> list[dict[str, Any] | HostError]:
    """Return what is in an image on hosts, asked in parallel. Raises ConfigError."""
    blocks = {host: _block(image, python, host, home, pool.hosts_path) for host in hosts}

    def ask(host: str) -> dict[str, Any] | HostError:
        try:
            place = pool.call(host, "start.look")
            spec = _spec(blocks[host], str(place["home"]), str(place["base"]))
            answer = pool.call(
                host,
                "containers.probe",
                spec=spec.to_json(),
                arguments=list(_PROBE),
                name=f"{_NAME}-{os.getpid()}",
            )
        except HostError as e:
            return e
        return _facts(host, image, ContainerReport.from_json(answer))

    return together(ask, hosts)


def _block(image: str, python: str | None, name: str, home: str, path: str | None) -> Container:
    """Return the block of a machine's entry with the image. Raises ConfigError."""
    where, host = Origin("--container"), load_hosts(home, path).machines.get(name)
    keys = ("image", "python") if python else ("image",)
    own = Container(image=image, python=python, origin=where, origins=dict.fromkeys(keys, where))
    base = None if host is None or host.container is None or host.container.off else host.container
    block = own if base is None else own.over(base)
    if block.engine in NAMES:
        raise ConfigError(
            f"{block.engine} runs images on compute nodes alone, where facts do not look",
            where=block.origins["engine"],
            hint=f"srun {block.engine} exec {image} python3 -c 'import torch; ...'",
        )
    return block


def _spec(block: Container, home: str, base: str) -> ContainerSpec:
    facts = {Slot.HOME: home, Slot.STORE: base}
    return block_spec(bind_mounts(block, facts), bind_word(HOME_FOLDER, facts))


def _facts(host: str, image: str, report: ContainerReport) -> dict[str, Any]:
    """Return the facts as `--json` has them."""
    if report.error:
        return {"host": host, "image": image, "error": report.error, "hint": report.hint or None}
    lines = str(report.probe[1]).splitlines()
    values = dict(line.split(" ", 1) for line in lines if " " in line)
    return {
        "host": host,
        "image": image,
        "engine": report.machine.engine,
        "image_id": report.image_id,
        "bash": True,  # which has started the interpreter
        "python": {"version": values["version"], "executable": values["executable"]},
        "packages": dict(report.packages),
        "notes": list(report.notes),
    }
