"""Checks: whether torch and NCCL fit the GPUs and the driver of a machine.

runtime/facts/interpreter.py reads the facts from the bytes of the libraries: torch is not imported.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from safelaunch.checks import job_needs, job_options, visible_gpus
from safelaunch.checks.answers import Answer, NotKnown, Question, fail, ok, warn
from safelaunch.checks.environment import cuda_compat, pip_commands
from safelaunch.checks.registry import check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from safelaunch.checks.context import HostContext

_COMPAT = "/usr/local/cuda/compat/libcuda.so.1"
_FORWARD = "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html"
_TWO_NCCLS = "https://github.com/pytorch/pytorch/issues/186591"
_NCCL_WHEEL = re.compile(r"nvidia-nccl-cu\d+")
_OFFS = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE")


def _concerns(host: HostContext) -> bool:
    """Whether torch, and a card, have a part in it at all."""
    if host.node is not None and not job_needs.runs_python(host):
        return False
    return visible_gpus.needs_gpu(host) is not False


def _worst(host: HostContext) -> Callable[..., Answer]:
    """Return `fail` where the job surely wants CUDA, else `warn`."""
    return fail if host.node is not None and visible_gpus.needs_gpu(host) else warn


def _torch(host: HostContext) -> dict[str, Any]:
    found: dict[str, Any] = host.fact("torch")
    return found


# -- torch -----------------------------------------------------------------------------------------


@check("torch-build", "environment", job=False, source=pip_commands.SOURCE)
def torch_build(host: HostContext) -> Answer | None:
    """Whether torch was built for these cards at all: for CUDA, not for the CPU or ROCm."""
    if not _concerns(host):
        return None
    if not host.get("gpus", "cards"):
        return None  # gpu-count says it
    found = _torch(host)
    if found.get("cuda"):
        return ok(f"torch {found['version']} is built for CUDA {found['cuda']}")
    if found.get("hip"):
        what = f"torch {found['version']} is built for ROCm, the cards are NVIDIA's"
        return _worst(host)(what, pip_commands.torch(host))
    what = f"torch {found.get('version') or ''} has no CUDA: the job would not see the cards"
    is_sure = "+cpu" in str(found.get("version"))
    return (_worst(host) if is_sure else warn)(what, pip_commands.torch(host))


@check("torch-archs", "environment", job=False, source=cuda_compat.BINARIES)
def torch_archs(host: HostContext) -> Answer | None:
    """Whether torch has code for the cards: no kernel runs without."""
    if not _concerns(host) or not host.get("gpus", "cards"):
        return None
    found = _torch(host)
    if not found.get("cuda"):
        return None  # torch-build says it
    archs = found.get("archs")
    if not archs:
        raise NotKnown("torch does not tell which architectures it has code for")
    seen = {_capability(host, card): card for card in visible_gpus.visible(host).gpus}
    if not seen:
        return None
    codes = {capability: cuda_compat.code_for(archs, capability) for capability in seen}
    without = [seen[capability] for capability, code in codes.items() if code is None]
    if without and len(without) < len(codes) and visible_gpus.visible(host).words is None:
        return _some(host, found, seen, codes)
    if without:
        return _no_code(host, found, without[0])
    return _compiled(host, found, codes) or ok(
        f"torch {found['version']} has {', '.join(sorted({str(c) for c in codes.values()}))}"
    )


def _capability(host: HostContext, card: dict[str, Any]) -> tuple[int, int]:
    """Return a card's compute capability; where it does not tell, that of its profile."""
    found = cuda_compat.capability(card.get("compute_capability"))
    profile = host.profile
    if (
        found is None
        and profile is not None
        and re.fullmatch(profile.gpu_names, card["name"] or "")
    ):
        found = cuda_compat.capability(profile.facts.get("compute_capability"))
    if found is None:
        raise NotKnown(f"{card.get('name') or 'a card'} does not tell its compute capability")
    return found


def _no_code(host: HostContext, found: dict[str, Any], card: dict[str, Any]) -> Answer:
    return _worst(host)(
        f"torch {found['version']} has no code for {_named(host, card)}, "
        f"only {' '.join(found['archs'])}",
        pip_commands.torch(host),
        f"{cuda_compat.BINARIES}; {pip_commands.SOURCE}",
    )


def _some(
    host: HostContext,
    found: dict[str, Any],
    seen: dict[tuple[int, int], dict[str, Any]],
    codes: dict[tuple[int, int], str | None],
) -> Answer:
    """Return what is to be said of a machine with one card too many, such as that of the screen."""
    card = next(seen[capability] for capability, code in codes.items() if code is None)
    good = [
        one["index"]
        for one in visible_gpus.visible(host).gpus
        if codes[_capability(host, one)] is not None
    ]
    return warn(
        f"torch {found['version']} has no code for {_named(host, card)}, but for the other cards",
        f"`gpus: {good}` leaves it out",
    )


def _named(host: HostContext, card: dict[str, Any]) -> str:
    major, minor = _capability(host, card)
    return f"sm_{major}{minor} ({card.get('name') or 'a card'})"


def _compiled(
    host: HostContext, found: dict[str, Any], codes: dict[tuple[int, int], str | None]
) -> Answer | None:
    """Return what is to be said where a card runs only PTX, which the driver must compile."""
    ptx = [str(code) for code in codes.values() if str(code).startswith("compute_")]
    driver = host.get("gpus", "cuda")
    if not ptx or cuda_compat.number(driver)[:2] >= cuda_compat.number(found["cuda"])[:2]:
        return None
    what = f"the driver has to compile torch {found['version']} for the cards ({ptx[0]})"
    return warn(
        f"{what}, and knows CUDA {driver or '?'}, not {found['cuda']}",
        pip_commands.torch(host),
        cuda_compat.DRIVERS,
    )


def _asks_compat(_: HostContext) -> Iterator[Question]:
    yield ("path", _COMPAT)


@check("torch-driver", "environment", job=False, asks=_asks_compat, source=cuda_compat.DRIVERS)
def torch_driver(host: HostContext) -> Answer | None:
    """Whether the driver is new enough for the CUDA that torch was built with."""
    if not _concerns(host) or not (host.get("gpus", "driver") or host.get("gpus", "cards")):
        return None
    found, driver = _torch(host), str(host.fact("gpus", "driver"))
    oldest = cuda_compat.oldest_driver(found["cuda"]) if found.get("cuda") else None
    if oldest is None:
        return None
    runs = f"driver {driver} runs CUDA {found['cuda']} of torch {found['version']}"
    if cuda_compat.number(driver) >= cuda_compat.number(oldest):
        return ok(runs)
    if cuda_compat.number(host.get("gpus", "cuda"))[:1] >= cuda_compat.number(found["cuda"])[:1]:
        return ok(f"{runs}, by the newer libcuda beside it")
    what = f"torch {found['version']} needs driver {oldest} or newer, this one is {driver}"
    hint = f"{pip_commands.torch(host)}; or install driver {oldest} or newer"
    if _has_compat(host):
        return warn(f"{what}; there is {_COMPAT}", hint, _FORWARD)
    return _worst(host)(what, hint)


def _has_compat(host: HostContext) -> bool:
    """Whether NVIDIA's forward compatibility may take the driver's place, as in its containers."""
    given = host.get("environ", "LD_LIBRARY_PATH")
    if host.node is not None:
        given = job_options.variable(host, "LD_LIBRARY_PATH")
    try:
        return "compat" in (given or "") or host.answer("path", _COMPAT)["kind"] is not None
    except NotKnown:
        return True  # nobody knows that it is not


# -- NCCL ------------------------------------------------------------------------------------------


@check("nccl-build", "environment", job=False, source=cuda_compat.NCCL)
def nccl_build(host: HostContext) -> Answer | None:
    """Whether NCCL has code for the cards, and is what their profile wants."""
    if not _uses_nccl(host):
        return None
    nccl = _torch(host).get("nccl")
    if not nccl and not _torch(host).get("cuda"):
        return None  # torch-build says it
    if not nccl:
        raise NotKnown("the version of NCCL is not known")
    version, built = _wheel_version(nccl), nccl.get("cuda")
    what = f"NCCL {version}" + (f" built with CUDA {built}" if built else "")
    capabilities = [_capability(host, card) for card in visible_gpus.visible(host).gpus]
    newest = max(capabilities, default=(0, 0))
    wheel = _wheel(host)
    cure = pip_commands.install(host, [f"{wheel}>=2.26.5"], "--no-deps")
    if newest[0] >= cuda_compat.BLACKWELL:
        if not cuda_compat.nccl_has_blackwell(version, built, version):
            sm = f"sm_{newest[0]}{newest[1]}"
            return warn(f"{what} has no code for {sm}: collectives crash or hang", cure)
        if cuda_compat.number(version) == (2, 25, 1):
            more = "wants more shared memory of a block than these cards have: it may not start"
            return warn(f"{what} {more}", cure)
        return ok(f"{what} has code for sm_{newest[0]}{newest[1]}")
    return _oldest_nccl(host, what, version) or ok(what)


def _uses_nccl(host: HostContext) -> bool:
    return _concerns(host) and job_needs.has_nccl(host) and bool(host.get("gpus", "cards"))


def _wheel(host: HostContext) -> str:
    return f"nvidia-nccl-cu{(cuda_compat.number(host.get('torch', 'cuda')) or (12,))[0]}"


def _wheel_version(nccl: dict[str, Any]) -> str:
    """Return the version with what only the wheel's name tells: the `.post1` of 2.26.2.post1."""
    version = str(nccl["version"])
    package = str(nccl.get("package") or "").rpartition(" ")[2]
    return package if cuda_compat.number(package) == cuda_compat.number(version) else version


def _oldest_nccl(host: HostContext, what: str, version: str) -> Answer | None:
    wanted = cuda_compat.number(host.profile.facts.get("min_nccl") if host.profile else None)
    if host.profile is None or not wanted or cuda_compat.number(version) >= wanted:
        return None
    least = ".".join(map(str, wanted))
    return warn(
        f"{what}; the profile `{host.profile.name}` wants {least} or newer",
        pip_commands.install(host, [f"{_wheel(host)}>={least}"], "--no-deps"),
        f"profile {host.profile.name}",
    )


@check("nccl-several", "environment", job=False, source=_TWO_NCCLS)
def nccl_several(host: HostContext) -> Answer | None:
    """Whether two NCCL wheels lie in the same folder, or one is loaded before torch's."""
    if not _concerns(host) or not job_needs.has_nccl(host):
        return None
    preloaded = host.get("environ", "LD_PRELOAD") or ""
    if host.node is not None and "LD_PRELOAD" not in host.plan.env and "nccl" in preloaded:
        return warn(
            f"LD_PRELOAD of the host puts {preloaded} before torch's NCCL",
            "`env: {LD_PRELOAD: null}`",
        )
    installed = host.fact("python", "packages")
    wheels_there = {name: installed[name] for name in installed if _NCCL_WHEEL.fullmatch(name)}
    own = _wheel(host)
    if len(wheels_there) < 2 or own not in wheels_there:  # noqa: PLR2004 - two of them
        return None
    others = [name for name in wheels_there if name != own]
    listed = ", ".join(f"{name} {version}" for name, version in wheels_there.items())
    again = pip_commands.install(
        host, [f"{own}=={wheels_there[own]}"], "--no-deps", "--force-reinstall"
    )
    remove = f"`{pip_commands.python(host)} -m pip uninstall -y {' '.join(others)}`"
    return warn(f"{listed}: they have the same files, the last installed counts",
                f"{remove}, then {again}")  # fmt: skip


@check("nccl-config", "environment", source="NCCL user guide, Environment Variables")
def nccl_config(host: HostContext) -> Answer | None:
    """Whether NCCL's own configuration files add what the plan does not say."""
    if not _concerns(host) or not job_needs.has_nccl(host):
        return None
    set_there: dict[str, tuple[str, str]] = {}
    for path, text in (host.get("nccl_conf") or {}).items():
        for line in str(text).splitlines():
            name, equals, value = line.partition("=")
            if equals and re.fullmatch(r"NCCL_\w+", name.strip()):
                set_there.setdefault(name.strip(), (path, value.strip()))
    for name, (path, value) in set_there.items():
        var = host.plan.env.get(name)
        if var is not None and var.value is None:
            what = f"{path} sets {name}={value}, which the job removes (`null`)"
            return warn(what, f"delete that line of {path}: a file cannot be taken back by `null`")
        is_one_node = host.context.plan is not None and host.context.plan.topology.nodes == 1
        if var is None and name in _OFFS and value not in ("", "0"):
            if name == "NCCL_IB_DISABLE" and is_one_node:
                continue
            what = f"{path} sets {name}={value} for all jobs; the plan does not"
            return warn(what, f'`env: {{{name}: "0"}}`, or delete that line of {path}')
    added = [
        f"{name}={value}" for name, (_, value) in set_there.items() if name not in host.plan.env
    ]
    return ok(f"{next(iter(set_there.values()))[0]} adds {', '.join(added)}") if added else None
