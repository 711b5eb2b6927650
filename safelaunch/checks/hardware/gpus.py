"""Checks of GPUs: their number, whether the profile fits, and what the job asks of them.

gpu_state.py has their state, interconnect.py how they are joined, resources.py the memory and
disks that the job needs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.checks import job_options, visible_gpus
from safelaunch.checks.answers import Answer, NotKnown, fail, ok, warn
from safelaunch.checks.registry import check
from safelaunch.config import profiles
from safelaunch.hostfacts import profile_detection
from safelaunch.model import BUILT_IN
from safelaunch.plan import gates

if TYPE_CHECKING:
    from collections.abc import Callable

    from safelaunch.checks.answers import Question
    from safelaunch.checks.context import HostContext
    from safelaunch.model import Profile

_CUDA_GUIDE = "NVIDIA CUDA programming guide, environment variables"
_MIG = "NVIDIA MIG user guide, CUDA device enumeration"
# cards that /proc/driver/nvidia does not show: AMD, WSL, Jetson; and NVIDIA's own device
_DEVICES = ("/dev/kfd", "/dev/dxg", "/dev/nvmap", "/dev/nvidiactl")


def _devices(_: HostContext) -> list[Question]:
    return [("path", device) for device in _DEVICES]


# -- how many --------------------------------------------------------------------------------------


@check("gpu-count", "hardware", asks=_devices, needs=("gpus",), quick=True, source=_CUDA_GUIDE)
def count(host: HostContext) -> Answer | None:
    """Whether each rank that takes a card finds one."""
    wanted = visible_gpus.needs_gpu(host)
    if wanted is False or visible_gpus.is_other_vendor(host):
        return None
    if not visible_gpus.all_gpus(host):
        return _none(host) if wanted else None
    found = visible_gpus.visible(host)
    ranks = visible_gpus.ranks(host, found) if visible_gpus.one_per_rank(host) else 1
    needed, has = max(ranks, 1), len(found.gpus)
    if wanted is None and not found.gpus:
        return None
    if has < needed:
        return _few(host, found, needed, bad=fail if wanted else warn)
    if found.missing:
        return warn(_missing(host, found), _other_set(host, found))
    who = f"{needed} rank{'s' * (needed > 1)}" if visible_gpus.one_per_rank(host) else "the job"
    return ok(f"{has} of {len(visible_gpus.all_gpus(host))} cards for {who}")


def _none(host: HostContext) -> Answer:
    for device in _DEVICES:
        if host.answer("path", device)["kind"] is not None:
            raise NotKnown(f"no card is seen, but {device} is there")
    tool = host.get("gpus", "nvidia_smi")
    if tool and not host.get("gpus", "troubles"):  # it would say that there are none
        raise NotKnown(f"{tool} tells of no card, and not that there is none")
    profile = host.profile
    said = "`gpus:`" if "gpus" in host.job.origins else "`needs.gpu_memory`"
    who = f"profile `{profile.name}`" if profile else said
    cure = "install NVIDIA's driver, until `nvidia-smi` lists the cards"
    if host.get("system", "container"):
        cure = "start the container with its cards: `docker run --gpus all ...`"
    count = "" if host.plan.processes is not None else " --set gpus=null --set processes=1"
    return fail(
        f"there is no NVIDIA card and no driver; {who} wants cards",
        f"{cure}; or run on the CPU: `--profile cpu{count}`",
        "PyTorch documentation, CUDA semantics",
    )


def _few(
    host: HostContext,
    found: visible_gpus.VisibleGpus,
    needed: int,
    *,
    bad: Callable[[str, str], Answer],
) -> Answer:
    every = visible_gpus.all_gpus(host)
    if found.missing:
        evidence = _missing(host, found)
    elif found.words is not None and len(every) >= needed:
        said = ",".join(found.words)
        evidence = f"CUDA_VISIBLE_DEVICES={said} of {found.origin} shows {len(found.gpus)} cards"
    else:
        evidence = f"the machine has {_cards(len(every))}"
    evidence += f", and {needed} ranks take one each" if needed > 1 else ", and the job wants one"
    if len(every) >= needed:
        return bad(evidence, _other_set(host, found, needed))
    keys = [key for key in ("processes", "gpus") if key in host.job.origins] or ["gpus"]
    return bad(evidence, "`" + " ".join(f"--set {key}={len(every)}" for key in keys) + "`")


def _cards(number: int) -> str:
    return f"{number} card{'' if number == 1 else 's'}"


def _missing(host: HostContext, found: visible_gpus.VisibleGpus) -> str:
    every = visible_gpus.all_gpus(host)
    names = ", ".join(found.missing)
    there = visible_gpus.indices(every)
    return f"CUDA_VISIBLE_DEVICES ({found.origin}) names {names}; there are {there}"


def _other_set(
    host: HostContext, found: visible_gpus.VisibleGpus, needed: int | None = None
) -> str:
    """Return how the job names cards that are there."""
    every = visible_gpus.all_gpus(host)
    job = host.job
    chosen = every[: needed or max(len(found.gpus), 1)]
    if "gpus" in job.origins or job.origin("env") == BUILT_IN:
        own = f"`--set 'gpus={visible_gpus.indices(chosen)}'`"
        if found.origin in ("your environment", "the host's environment"):
            return f"`unset CUDA_VISIBLE_DEVICES`, or give the job its cards: {own}"
        return own
    own = f"`gpus: {visible_gpus.indices(chosen)}`"
    return f"take CUDA_VISIBLE_DEVICES out of `env:`, and name the cards with {own}"


@check("gpu-order", "hardware", needs=("gpus",), quick=True, source=_CUDA_GUIDE)
def order(host: HostContext) -> Answer | None:
    """Whether the number of a card is the same for CUDA and nvidia-smi, where cards differ."""
    found, names = (
        visible_gpus.visible(host),
        {card["name"] for card in visible_gpus.all_gpus(host)},
    )
    by_number = [word for word in found.words or () if word.isdigit()]
    if len(names) < 2 or not by_number or visible_gpus.needs_gpu(host) is False:  # noqa: PLR2004 - different
        return None
    name = "CUDA_DEVICE_ORDER"
    var = host.plan.env.get(name)
    value = host.context.environ.get(name) if var is None and host.is_local else var and var.value
    if value == "PCI_BUS_ID":
        return ok("cards are counted in nvidia-smi's order")
    return warn(
        f"the cards differ ({visible_gpus.names(visible_gpus.all_gpus(host))}), and CUDA "
        "counts the fastest "
        f"first: {', '.join(by_number)} may be others than nvidia-smi's",
        "`env: {CUDA_DEVICE_ORDER: PCI_BUS_ID}`",
    )


@check("gpu-slices", "hardware", needs=("gpus",), source=_MIG)
def slices(host: HostContext) -> Answer | None:
    """Whether several ranks are to share cards that are cut into slices: each sees one slice."""
    if visible_gpus.needs_gpu(host) is False or not visible_gpus.all_gpus(host):
        return None
    found = visible_gpus.visible(host)
    cut = [card for card in found.gpus if card.get("mig")]
    if not cut:
        return None
    ranks = visible_gpus.ranks(host, found)
    if ranks < 2:  # noqa: PLR2004 - several
        return ok(f"one process on a slice of card {cut[0]['index']}")
    whole = [card for card in visible_gpus.all_gpus(host) if not card.get("mig")]
    other = f"`--set 'gpus={visible_gpus.indices(whole)}'` takes the whole cards; " if whole else ""
    return warn(
        f"{_cards(len(cut))} cut into MIG slices, and a process sees one slice: {ranks} ranks "
        "cannot take one each",
        f"{other}`--set processes=1` runs on one slice; `sudo nvidia-smi -mig 0` joins the slices",
    )


# -- of which kind ---------------------------------------------------------------------------------


@check("profile-fits", "hardware", job=False, needs=("gpus",), quick=True)
def profile_fits(host: HostContext) -> Answer | None:
    """Whether the profile is for the cards that the job uses; names the right one."""
    if (
        visible_gpus.needs_gpu(host) is False
        or visible_gpus.is_other_vendor(host)
        or not visible_gpus.all_gpus(host)
    ):
        return None
    used = [card for card in visible_gpus.visible(host).gpus if card["name"]]
    if not used:
        return None
    if host.profile is None:
        return _no_profile(host, used)
    wanted = host.profile.gpu_names
    strange = [card for card in used if wanted and not re.fullmatch(wanted, card["name"])]
    if not wanted:
        return None
    if not strange:
        return ok(f"profile {host.profile.name} is for {visible_gpus.names(used)}")
    return warn(
        f"profile `{host.profile.name}` is for {host.profile.description or wanted}; "
        f"the cards are {visible_gpus.names(used)}",
        _right_profile(host, used, strange),
        ", ".join(host.profile.files),
    )


def _right_profile(
    host: HostContext, used: list[visible_gpus.Gpu], strange: list[visible_gpus.Gpu]
) -> str:
    right = _fitting(used)
    if right is not None:
        return f"`--profile {right}`"
    same = [card for card in used if card not in strange]
    if same and host.node is not None:
        return f"`gpus: {visible_gpus.indices(same)}` takes the cards that it is for"
    where = "its entry" if host.context.resolved is None else host.context.resolved.profile_origin
    return f"no shipped profile is for them: leave `profile` out ({where})"


def _fitting(used: list[visible_gpus.Gpu]) -> str | None:
    return profile_detection.match_profile({"gpus": {"cards": used}}, shipped()).profile


def shipped() -> list[Profile]:
    """Return the profiles that come with safelaunch."""
    return [profiles.load(name, BUILT_IN, ".") for name in profiles.names()]


def _no_profile(host: HostContext, used: list[visible_gpus.Gpu]) -> Answer | None:
    """Say which profile fits; that none is given only matters where it would set something."""
    right = _fitting(used)
    if right is None:
        return None
    if host.node is None:
        return ok(f"{visible_gpus.names(used)}: profile {right} is for them")
    known = _known(
        host, {**profile_detection.gate_facts(host.facts), **host.entry.facts}, len(used)
    )
    chosen = gates.select(profiles.load(right, BUILT_IN, "."), known, ladder=None, workarounds=True)
    names = [var.name for var in chosen.env if var.name not in host.plan.env]
    if not names:
        return ok(f"profile {right} fits, and would set nothing here")
    return warn(
        f"no profile: {right} is for {visible_gpus.names(used)}, and sets {', '.join(names)}",
        f"`--profile {right}`; `safelaunch profiles {right}` says why",
    )


def _known(host: HostContext, facts: dict[str, str], count: int) -> gates.DeclaredFacts:
    job = host.job
    gpus = len(job.gpus) or job.topology.processes or count
    return gates.DeclaredFacts(gpus, job.topology.nodes, facts)


@check("profile-facts", "hardware")
def profile_facts(host: HostContext) -> Answer | None:
    """Whether variables are set only because the hosts file does not declare what is there."""
    profile, real = host.profile, profile_detection.gate_facts(host.facts)
    if profile is None or profile.accelerator != "cuda" or not real:
        return None
    count = visible_gpus.ranks(host, visible_gpus.visible(host))
    before = _known(host, dict(host.entry.facts), count)
    after = _known(host, {**real, **host.entry.facts}, count)
    on = gates.select(profile, before, ladder=None, workarounds=True)
    off = {v.name for v in gates.select(profile, after, ladder=None, workarounds=True).env}
    env = host.plan.env
    lifted = [
        v.name
        for v in on.env
        if v.name not in off and v.name in env and env[v.name].origin == v.origin
    ]
    if not lifted:
        is_known = real.keys() >= on.undeclared.keys()
        return ok("the profile's conditions are judged on what is there") if is_known else None
    facts = ", ".join(f"{fact} is {real[fact]}" for fact in on.undeclared if fact in real)
    what = job_options.command_line(host)
    save = f"`safelaunch check --host {host.name} --save {what}` writes it into the hosts file"
    if host.is_local:
        save = f"`safelaunch check --save {what}` writes it into a hosts file, and says how `run` "
        save += "reads that"
    return warn(
        f"{', '.join(lifted)} set for want of facts: {facts}, which does not need them",
        save,
        "docs/job-file.md, Profile",
    )


# -- what they can ---------------------------------------------------------------------------------


class _Precision(NamedTuple):
    least: tuple[int, int]  # compute capability
    below: str  # what happens below it
    source: str


_PRECISIONS = {
    "bf16": _Precision(
        (8, 0),
        "bf16 is refused there, or emulated and slow",
        "NVIDIA CUDA programming guide, compute capabilities; accelerate, is_bf16_available",
    ),
    "fp8": _Precision(
        (8, 9),
        "FP8 is refused there, or left out",
        "Transformer Engine documentation; accelerate, check_cuda_fp8_capability",
    ),
}
_DTYPES = {"bfloat16": "bf16", "bf16": "bf16", "fp8": "fp8", "float8": "fp8"}


@check("precision", "hardware", needs=("gpus",))
def precision(host: HostContext) -> Answer | None:
    """Whether the cards compute in what the job asks for."""
    asked = _asked(host)
    if asked is None or visible_gpus.needs_gpu(host) is False or not visible_gpus.all_gpus(host):
        return None
    name, words, key = asked
    used = [(card, _capability(card)) for card in visible_gpus.visible(host).gpus]
    known = [(at, card) for card, at in used if at is not None]
    if not known:
        raise NotKnown("the compute capability of the cards is not known")
    rule = _PRECISIONS[name]
    lowest = min(at for at, _ in known)
    old = [card for at, card in known if at < rule.least]
    if not old:
        return ok(f"compute capability {lowest[0]}.{lowest[1]} has {name}")
    other = "bf16" if name == "fp8" and lowest >= _PRECISIONS["bf16"].least else "fp16"
    return warn(
        f"`{words}`, and {visible_gpus.names(old)} has compute capability "
        f"{old[0]['compute_capability']}: {rule.below}",
        _instead(host, key, words, other),
        rule.source,
    )


def _asked(host: HostContext) -> tuple[str, str, str] | None:
    """Return the precision that the job asks for, the words that say it, and the key.

    The key is `mixed_precision` of the job, or an option of its program.
    """
    job = host.job
    if job.mixed_precision in _PRECISIONS:
        return job.mixed_precision, f"mixed_precision: {job.mixed_precision}", "mixed_precision"
    options = job_options.options(job)
    for name in _PRECISIONS:
        if job_options.is_on(options, name):
            return name, f"--{name}", f"args.{name}"
    for key in ("torch_dtype", "dtype"):
        value = job_options.first_value(options, key)
        if value in _DTYPES:
            return _DTYPES[value], f"--{key} {value}", f"args.{key}"
    return None


def _instead(host: HostContext, key: str, asked: str, other: str) -> str:
    """Return how the job says another precision."""
    if key == "mixed_precision":
        return f"`--set mixed_precision={other}`"
    if not host.job.args.is_mapping:
        return f"give the program {other} in place of `{asked}`"
    if key.endswith("dtype"):
        return f"`--set {key}={'bfloat16' if other == 'bf16' else 'float16'}`"
    return f"`--set {key}=null --set args.{other}=true`"


def _capability(card: visible_gpus.Gpu) -> tuple[int, int] | None:
    match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", str(card["compute_capability"]))
    return (int(match[1]), int(match[2])) if match else None
