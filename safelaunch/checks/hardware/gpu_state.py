"""Checks the state of GPUs: errors of the driver, and processes and runs that use them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.checks import job_options, visible_gpus
from safelaunch.checks.answers import Answer, NotKnown, fail, ok, warn
from safelaunch.checks.registry import check
from safelaunch.runtime.start import accelerators

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.checks.context import HostContext
    from safelaunch.checks.visible_gpus import Gpu, VisibleGpus


class _DriverError(NamedTuple):
    """What an error of nvidia-smi means. `is_fatal`: CUDA cannot start either."""

    is_fatal: bool
    what: str
    hint: str
    source: str = "NVIDIA driver installation guide"


_CONTAINERS = "NVIDIA Container Toolkit, troubleshooting"
_XID = "NVIDIA, Xid errors"
_LOST = (
    "reboot the machine: nothing else brings it back; if it happens again, "
    "`sudo dmesg | grep -i xid` shows what the GPU reported (79: power, heat or a loose card)"
)
_ERRORS = {
    "driver-not-running": _DriverError(
        True,
        "the NVIDIA driver is not loaded",
        "`sudo modprobe nvidia`; if that fails the kernel is newer than the driver's module: "
        "`sudo dkms autoinstall`, then reboot",
    ),
    "driver-library-mismatch": _DriverError(
        True,
        "the driver was updated, and the old one is still loaded",
        "reboot; or, with no job on the GPUs: `sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset "
        "nvidia && sudo modprobe nvidia`",
    ),
    "gpu-lost": _DriverError(True, "a GPU has fallen off the bus", _LOST, _XID),
    "gpu-handle-unknown": _DriverError(True, "a GPU does not answer", _LOST, _XID),
    "no-devices": _DriverError(
        True,
        "the driver is loaded and finds no GPU",
        "`sudo dmesg | grep -i nvrm` shows why it refused the GPU; if `lspci | grep -i nvidia` "
        "lists none, the slot or the virtual machine is the cause",
    ),
    "nvml-unknown": _DriverError(
        True,
        "the GPUs cannot be opened: a container loses them when systemd reloads",
        "start the container again (outside one: reboot)",
        _CONTAINERS,
    ),
    "no-library": _DriverError(
        False,
        "nvidia-smi finds no libnvidia-ml.so",
        "in a container: `-e NVIDIA_DRIVER_CAPABILITIES=compute,utility`; else install the driver's"
        " own packages again",
        _CONTAINERS,
    ),
    "no-permission": _DriverError(
        False,
        "nvidia-smi may not ask the driver",
        "`ls -l /dev/nvidia*` shows the group that may: ask to be added to it",
    ),
    "nvml-failed": _DriverError(
        False, "nvidia-smi cannot ask the driver", "run `nvidia-smi` there; a reboot fixes most"
    ),
}


@check("gpu-driver", job=False, needs=("gpus",))
def driver(host: HostContext) -> Iterator[Answer]:
    """Whether nvidia-smi reports no errors; some of them prevent a start."""
    needed = visible_gpus.needs_gpu(host)
    if needed is False or visible_gpus.is_other_vendor(host):
        return
    errors = [error for error in host.get("gpus", "troubles") or () if error["kind"] in _ERRORS]
    for error in errors:
        meaning = _ERRORS[error["kind"]]
        is_fatal = meaning.is_fatal and needed and not _is_unused_gpu(host, error)
        text = f": `{error['text'][:160]}`" if error["text"] else ""
        yield (fail if is_fatal else warn)(meaning.what + text, meaning.hint, meaning.source)
    late = host.get("gpus", "late", "query")
    if late and not errors:
        yield warn(
            f"nvidia-smi does not report the GPUs: {late}",
            "run `nvidia-smi` there: if it hangs too (`ps -o stat,wchan -C nvidia-smi`: D), the "
            "driver hangs, and only a reboot helps; if it is slow, `sudo nvidia-smi -pm 1`",
            "NVIDIA driver persistence",
        )
    gpus = host.get("gpus", "cards") or []
    yield from _missing_fields(gpus)
    if gpus and not errors and not late:
        version = host.get("gpus", "driver")
        yield ok(f"driver {version or 'of unknown version'}: {visible_gpus.names(gpus)}")


def _is_unused_gpu(host: HostContext, error: dict[str, Any]) -> bool:
    """Whether an error is of one GPU, and the job uses others."""
    if error["kind"] not in ("gpu-lost", "gpu-handle-unknown"):
        return False
    value, _ = visible_gpus.visible_devices(host)
    if value is None:
        return False
    words = [word.strip() for word in value.split(",")]
    if error["index"] is not None:
        return str(error["index"]) not in words
    # the index of the lost GPU is not known: all GPUs of the job must still be listed
    return set(words) <= {str(gpu["index"]) for gpu in host.get("gpus", "cards") or ()}


def _missing_fields(gpus: Sequence[Gpu]) -> Iterator[Answer]:
    """Yield a warning where a GPU lacks a field that others have: ERR!, Unknown Error."""
    whole = [gpu for gpu in gpus if not gpu.get("mig")]
    for field, what in (("name", "name"), ("memory_mib", "memory")):
        without = [gpu["index"] for gpu in whole if gpu[field] is None]
        if without and len(without) < len(whole):
            index = without[0]
            yield warn(
                f"GPU {index} reports no {what} (ERR! or N/A) while the others do",
                f"`sudo dmesg | grep -i xid`; `sudo nvidia-smi -r -i {index}` resets it, or reboot",
                _XID,
            )
            return


_SHOWN = 4  # processes


@check("gpu-processes", job=False, needs=("gpus",))
def processes(host: HostContext) -> Answer | None:
    """Whether no other processes hold memory of the GPUs. They are listed, and never ended."""
    if not visible_gpus.has_gpus(host):
        return None
    listed = host.get("gpus", "processes")
    if listed is None:
        raise NotKnown("the processes on the GPUs are not known")
    visible = visible_gpus.visible(host)
    own = {gpu["index"] for gpu in visible.gpus}
    computing = [process for process in listed if process["kind"] != "G"]
    others = [process for process in computing if process["card"] in own]
    if not others:
        return ok("no other process uses the GPUs") if visible.gpus else None
    shown = "; ".join(_describe(host, process) for process in others[:_SHOWN])
    more = f"; {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    busy = {str(process["card"]) for process in computing}
    needed = max(visible_gpus.ranks(host, visible), 1) if host.node is not None else 1
    free = _unused_gpus(host, busy, needed) if host.node is not None else None
    wait = "safelaunch never ends a process of others: wait for them, or ask their owners"
    return warn(f"other processes: {shown}{more}", f"{free} uses free GPUs" if free else wait)


def _describe(host: HostContext, process: dict[str, Any]) -> str:
    user = process["user"] or "an unknown user"
    who = "you" if user == host.get("system", "user") else user
    name = str(process["name"] or "unknown").split("/")[-1][:40]
    memory = f", {process['used_mib']} MiB" if process["used_mib"] is not None else ""
    return f"GPU {process['card']}: {name} (pid {process['pid']}, {who}{memory})"


def _unused_gpus(host: HostContext, used: set[str], needed: int) -> str | None:
    """Return the option for enough GPUs that are not used; None where too few are left."""
    try:
        gpus = visible_gpus.all_gpus(host)
    except NotKnown:
        gpus = []
    free = [gpu for gpu in gpus if str(gpu["index"]) not in used]
    if len(free) < needed:
        return None
    return f"`--set 'gpus={visible_gpus.indices(free[:needed])}'`"


@check(
    "gpu-sets", asks=lambda _: [("runs",)], quick=True, source="AReaL and ms-swift documentation"
)
def sets(host: HostContext) -> Answer | None:
    """Whether no live run of safelaunch uses GPUs of this job: a trainer and its server, say."""
    if host.job.queue is not None:  # which chooses free ones
        return None
    needed = visible_gpus.needs_device(host)
    own = _indices(host, visible_gpus.visible_devices(host)[0])
    if needed is False or (own is None and needed is None):
        return None
    services = _cards_of_services(host)
    own = None if own is None else own | services
    clashes, used = [], set()
    for run in host.answer("runs")["live"]:
        others = _indices(host, _devices_of_run(run)) or set()
        others |= visible_gpus.as_indices(host, run.get("cards_of_services") or ())
        shared = sorted(others if own is None else others & own)
        used |= others
        if shared:
            name = f"`{run['name']}`" if run["name"] else run["id"]
            clashes.append(f"{name} ({run['id']}) has {', '.join(shared)}")
    for claim in host.answer("runs").get("cards") or ():
        others = visible_gpus.as_indices(host, claim["words"])
        shared = sorted(others if own is None else others & own)
        used |= others
        if shared:
            clashes.append(f"{claim['run']} of {claim['user']} has {', '.join(shared)}")
    if not clashes:
        return None
    free = _unused_gpus(host, used, len(own) if own is not None else host.plan.processes or 1)
    which = "all GPUs" if own is None else f"GPUs {', '.join(sorted(own))}"
    who = "this job and its services use" if services else "this job uses"
    return warn(
        f"{who} {which}, and the live run {'; '.join(clashes[:_SHOWN])}",
        f"{free} uses other GPUs"
        if free
        else "give each its own with `gpus:`, such as `gpus: [0]` for a server and "
        "`gpus: [1, 2, 3]` for its trainer; or `safelaunch stop` the other",
    )


def _indices(host: HostContext, devices: str | None) -> set[str] | None:
    if devices is None:
        return None
    return visible_gpus.as_indices(host, accelerators.split_words(devices))


def _cards_of_services(host: HostContext) -> set[str]:
    """Return the cards that the services of a job name, before a start: else each is checked."""
    if host.context.plan is None or not host.context.is_quick:
        return set()
    cards: set[str] = set()
    number = 0 if host.node is None else host.node.node_rank
    for service in host.context.plan.services:
        if service.node != number:
            continue
        env = service.plan.nodes[0].env
        values = [env[name].value for name in accelerators.DEVICE_VARIABLES if name in env]
        for value in filter(None, values):
            cards |= _indices(host, str(value)) or set()
    return cards


def _devices_of_run(run: dict[str, Any]) -> str | None:
    """Return the devices that a run's plan selects; None where it selects none."""
    rank = str(run.get("node") or "").rpartition("-")[2]
    try:
        node = next(n for n in run["plan"]["nodes"] if str(n["node_rank"]) == rank)
        values = {n: str(value) for n in accelerators.DEVICE_VARIABLES if n in node["env"]
                  if (value := node["env"][n]["value"]) is not None}  # fmt: skip
    except (TypeError, KeyError, StopIteration, AttributeError):
        return None
    kind = accelerators.ACCELERATORS[accelerators.kind_of(values)]
    selected = accelerators.select(kind, values)
    return None if selected is None else ",".join(selected.words)


@check("gpu-engine", needs=("gpus",), source="TRL, GRPOConfig: vllm_device, vllm_mode")
def engine(host: HostContext) -> Answer | None:
    """Whether an inference engine beside the ranks has a GPU of its own, by the job's options."""
    options = job_options.options(host.job)
    device = job_options.first_value(options, "vllm_device")
    is_server = job_options.first_value(options, "vllm_mode") == "server"
    if (device is None and not is_server) or not visible_gpus.has_gpus(host):
        return None
    visible = visible_gpus.visible(host)
    ranks, count = visible_gpus.ranks(host, visible), len(visible.gpus)
    if device is None:
        return _server(host, visible, job_options.first_value(options, "vllm_server_host"))
    match = re.fullmatch(r"cuda:(\d{1,3})", device)
    index = int(match[1]) if match else ranks  # `auto`: the first after the ranks
    if index < ranks:
        return warn(
            f"vllm_device cuda:{index} is the GPU of rank {index}",
            f"`vllm_device: cuda:{ranks}`, after the {ranks} ranks",
        )
    if index >= count:
        return warn(
            f"vllm_device is GPU {index}, and the job sees {count} GPUs",
            f"`--set processes={max(count - 1, 1)}` leaves it the last one",
        )
    return ok(f"the engine's GPU {index} is none of the {ranks} ranks'")


def _server(host: HostContext, visible: VisibleGpus, address: str | None) -> Answer | None:
    """Check a trainer whose vLLM server runs on the same host, and needs GPUs too."""
    if address not in (None, "127.0.0.1", "localhost", "0.0.0.0", "::1"):  # noqa: S104 - compared
        return None
    gpus = visible_gpus.all_gpus(host)
    count = len(gpus)
    if len(visible.gpus) < count:
        return ok(f"{count - len(visible.gpus)} GPUs are left for the server")
    hint = "run the server on another machine, or `vllm_mode: colocate`"
    if count > 1:
        trainer = f"`gpus: {visible_gpus.indices(gpus[1:])}` and `--set processes={count - 1}`"
        hint = f"{trainer}, the server with `gpus: [0]`"
    return warn(
        f"vllm_mode server: the trainer sees all {count} GPUs, and its server needs some", hint
    )
