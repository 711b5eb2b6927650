"""Checks of how cards are: what the driver says, and who else uses them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch.checks import job_options, visible_gpus
from safelaunch.checks.answers import Answer, NotKnown, fail, ok, warn
from safelaunch.checks.registry import check

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from safelaunch.checks.answers import Question
    from safelaunch.checks.context import HostContext

# -- the driver ------------------------------------------------------------------------------------


class _Trouble(NamedTuple):
    """What an error of nvidia-smi means. `bars`: CUDA cannot start either."""

    bars: bool
    what: str
    hint: str
    source: str = "NVIDIA driver installation guide"


_CONTAINERS = "NVIDIA Container Toolkit, troubleshooting"
_XID = "NVIDIA, Xid errors"
_LOST = "reboot the machine: it does not come back without; if it happens again, `sudo dmesg | "
_LOST += "grep -i xid` tells what the card reported (79: power, heat or a loose card)"
_TROUBLES = {
    "driver-not-running": _Trouble(
        True,
        "the NVIDIA driver is not loaded",
        "`sudo modprobe nvidia`; where that fails the kernel is newer than the driver's module: "
        "`sudo dkms autoinstall`, then reboot",
    ),
    "driver-library-mismatch": _Trouble(
        True,
        "the driver was updated, and the old one is still loaded",
        "reboot; or, with no job on the cards: `sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset "
        "nvidia && sudo modprobe nvidia`",
    ),
    "gpu-lost": _Trouble(True, "a card has fallen off the bus", _LOST, _XID),
    "gpu-handle-unknown": _Trouble(True, "a card does not answer", _LOST, _XID),
    "no-devices": _Trouble(
        True,
        "the driver is loaded and finds no card",
        "`sudo dmesg | grep -i nvrm` says why it refused the card; where `lspci | grep -i nvidia` "
        "lists none, it is the slot or the virtual machine",
    ),
    "nvml-unknown": _Trouble(
        True,
        "the cards cannot be opened: a container loses them when systemd reloads",
        "start the container again (outside one: reboot)",
        _CONTAINERS,
    ),
    "no-library": _Trouble(
        False,
        "nvidia-smi finds no libnvidia-ml.so",
        "in a container: `-e NVIDIA_DRIVER_CAPABILITIES=compute,utility`; else install the driver's"
        " own packages again",
        _CONTAINERS,
    ),
    "no-permission": _Trouble(
        False,
        "nvidia-smi may not ask the driver",
        "`ls -l /dev/nvidia*` shows the group that may: have yourself added to it",
    ),
    "nvml-failed": _Trouble(
        False, "nvidia-smi cannot ask the driver", "run `nvidia-smi` there; a reboot clears most"
    ),
}


@check("gpu-driver", "hardware", job=False, needs=("gpus",))
def driver(host: HostContext) -> Iterator[Answer]:
    """Whether nvidia-smi reports errors, and which of them bar a start."""
    wanted = visible_gpus.needs_gpu(host)
    if wanted is False or visible_gpus.is_other_vendor(host):
        return
    told = [one for one in host.get("gpus", "troubles") or () if one["kind"] in _TROUBLES]
    for one in told:
        trouble = _TROUBLES[one["kind"]]
        bars = trouble.bars and wanted and not _is_elsewhere(host, one)
        evidence = f"{trouble.what}: `{one['text'][:160]}`" if one["text"] else trouble.what
        yield (fail if bars else warn)(evidence, trouble.hint, trouble.source)
    late = host.get("gpus", "late", "query")
    if late and not told:
        yield warn(
            f"nvidia-smi does not tell of the cards: {late}",
            "run `nvidia-smi` there: if it hangs too (`ps -o stat,wchan -C nvidia-smi`: D), the "
            "driver hangs, and only a reboot helps; if it is slow, `sudo nvidia-smi -pm 1`",
            "NVIDIA driver persistence",
        )
    found = host.get("gpus", "cards") or []
    yield from _silent(found)
    if found and not told and not late:
        version = host.get("gpus", "driver")
        yield ok(f"driver {version or 'of unknown version'}: {visible_gpus.names(found)}")


def _is_elsewhere(host: HostContext, trouble: dict[str, Any]) -> bool:
    """Whether an error is of one card, and the job uses others."""
    if trouble["kind"] not in ("gpu-lost", "gpu-handle-unknown") or host.node is None:
        return False
    names, _ = visible_gpus.visible_devices(host)
    words = [word.strip() for word in (names or "").split(",")]
    # with the index of the lost one unknown, the cards that are named must all be there
    here = {str(card["index"]) for card in host.get("gpus", "cards") or ()}
    lost = trouble["index"]
    if names is None:
        return False
    return str(lost) not in words if lost is not None else set(words) <= here


def _silent(found: Sequence[visible_gpus.Gpu]) -> Iterator[Answer]:
    """Tell of cards without the fields that others of the machine have: ERR!, Unknown Error."""
    for field, what in (("name", "name"), ("memory_mib", "memory")):
        mute = [card for card in found if card[field] is None and not card.get("mig")]
        if mute and len(mute) < len([card for card in found if not card.get("mig")]):
            one = mute[0]["index"]
            yield warn(
                f"card {one} tells no {what} (ERR! or N/A) where the others do",
                f"`sudo dmesg | grep -i xid`; `sudo nvidia-smi -r -i {one}` resets it, or reboot",
                _XID,
            )
            return


# -- who else uses them ----------------------------------------------------------------------------

_SHOWN = 4  # processes that are named


@check("gpu-processes", "hardware", job=False, needs=("gpus",))
def processes(host: HostContext) -> Answer | None:
    """Whether others hold memory of the cards. They are named, and left alone."""
    if visible_gpus.needs_gpu(host) is False or not visible_gpus.all_gpus(host):
        return None
    told = host.get("gpus", "processes")
    if told is None:
        raise NotKnown("who uses the cards is not known")
    found = visible_gpus.visible(host)
    own = {card["index"] for card in found.gpus}
    others = [one for one in told if one["card"] in own and one["kind"] != "G"]
    if not others:
        return ok("nobody else is on the cards") if found.gpus else None
    shown = "; ".join(_holder(host, one) for one in others[:_SHOWN])
    more = f"; {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    return warn(f"on the cards: {shown}{more}", _free_cards(host, found, told))


def _holder(host: HostContext, one: dict[str, Any]) -> str:
    user = one["user"] or "a user not seen from here"
    who = "you" if user == host.get("system", "user") else user
    name = str(one["name"] or "unknown").split("/")[-1][:40]
    held = f", {one['used_mib']} MiB" if one["used_mib"] is not None else ""
    return f"card {one['card']}: {name} (pid {one['pid']}, {who}{held})"


def _free_cards(
    host: HostContext, found: visible_gpus.VisibleGpus, told: Sequence[dict[str, Any]]
) -> str:
    busy = {one["card"] for one in told if one["kind"] != "G"}
    free = [card for card in visible_gpus.all_gpus(host) if card["index"] not in busy]
    needed = max(visible_gpus.ranks(host, found), 1) if host.node is not None else 1
    if host.node is not None and len(free) >= needed:
        return f"`--set 'gpus={visible_gpus.indices(free[:needed])}'` takes cards that nobody uses"
    return "safelaunch ends nobody's process: wait for them, or ask whoever they belong to"


def _runs(_: HostContext) -> list[Question]:
    return [("runs",)]


@check("gpu-sets", "hardware", asks=_runs, quick=True, source="AReaL and ms-swift documentation")
def sets(host: HostContext) -> Answer | None:
    """Whether a live run of ours was given cards of this job: a trainer and its server, say."""
    if visible_gpus.needs_gpu(host) is False:
        return None
    mine = _words(host, visible_gpus.visible_devices(host)[0])
    if mine is None and visible_gpus.needs_gpu(host) is None:
        return None
    clashes, taken = [], set()
    for run in host.answer("runs"):
        theirs = _of_run(host, run) or set()
        shared = sorted(theirs if mine is None else theirs & mine)
        taken |= theirs
        if shared:
            name = f"`{run['name']}`" if run["name"] else run["id"]
            clashes.append(f"{name} ({run['id']}) has {', '.join(shared)}")
    if not clashes:
        return None
    which = "all cards" if mine is None else f"cards {', '.join(sorted(mine))}"
    return warn(
        f"this job takes {which}, and the live run {'; '.join(clashes[:_SHOWN])}",
        _others_left(host, mine, taken),
    )


def _others_left(host: HostContext, mine: set[str] | None, taken: set[str]) -> str:
    """Return how to take cards that no live run was given, where enough are left."""
    free = [c for c in host.get("gpus", "cards") or () if str(c["index"]) not in taken]
    needed = len(mine) if mine is not None else host.plan.processes or 1
    if len(free) >= needed:
        return f"`--set 'gpus={visible_gpus.indices(free[:needed])}'` takes others"
    return (
        "give each its own with `gpus:`, such as `gpus: [0]` for a server and `gpus: [1, 2, 3]` "
        "for its trainer; or `safelaunch stop` the other"
    )


def _words(host: HostContext, names: str | None) -> set[str] | None:
    if names is None:
        return None
    return visible_gpus.as_indices(
        host, (word.strip() for word in names.split(",") if word.strip())
    )


def _of_run(host: HostContext, run: dict[str, Any]) -> set[str] | None:
    """Return the cards that the plan of a run names; None where it names none."""
    node = str(run.get("node") or "").rpartition("-")[2]
    try:
        nodes = run["plan"]["nodes"]
        plan = next(one for one in nodes if str(one["node_rank"]) == node)
        return _words(host, plan["env"][visible_gpus.CUDA]["value"])
    except (TypeError, KeyError, StopIteration, AttributeError):
        return None


_DEVICE = re.compile(r"cuda:(\d{1,3})")


@check("gpu-engine", "hardware", needs=("gpus",), source="TRL, GRPOConfig: vllm_device, vllm_mode")
def engine(host: HostContext) -> Answer | None:
    """Whether an inference engine beside the ranks has a card of its own; read off the options."""
    options = job_options.options(host.job)
    device, mode = (
        job_options.first_value(options, "vllm_device"),
        job_options.first_value(options, "vllm_mode"),
    )
    if (device is None and mode != "server") or visible_gpus.needs_gpu(host) is False:
        return None
    every, found = visible_gpus.all_gpus(host), visible_gpus.visible(host)
    if not every:
        return None
    ranks = visible_gpus.ranks(host, found)
    if device is None:
        return _server(host, found, job_options.first_value(options, "vllm_server_host"))
    match = _DEVICE.fullmatch(device)
    at = int(match[1]) if match else ranks  # `auto`: the first behind the ranks
    if at < ranks:
        return warn(
            f"vllm_device cuda:{at} is the card of rank {at}",
            f"`vllm_device: cuda:{ranks}`, behind the {ranks} ranks",
        )
    if at >= len(found.gpus):
        return warn(
            f"vllm_device is card {at}, and the job sees {len(found.gpus)} cards",
            f"`--set processes={max(len(found.gpus) - 1, 1)}` leaves it the last one",
        )
    return ok(f"the engine's card {at} is none of the {ranks} ranks'")


def _server(
    host: HostContext, found: visible_gpus.VisibleGpus, server: str | None
) -> Answer | None:
    """Judge a trainer whose vLLM server is on this machine, and needs cards too."""
    if server not in (None, "127.0.0.1", "localhost", "0.0.0.0", "::1"):  # noqa: S104 - compared
        return None
    every = len(visible_gpus.all_gpus(host))
    if len(found.gpus) < every:
        return ok(f"{every - len(found.gpus)} cards are left for the server")
    trainer = visible_gpus.indices(visible_gpus.all_gpus(host)[1:]) if every > 1 else None
    hint = f"`gpus: {trainer}` and `--set processes={every - 1}`, the server with `gpus: [0]`"
    return warn(
        f"vllm_mode server: the trainer sees all {every} cards, and its server needs some",
        hint if trainer else "run the server on another machine, or `vllm_mode: colocate`",
    )
