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
    from safelaunch.checks.context import Site
    from safelaunch.model import Profile

_CUDA_GUIDE = "NVIDIA CUDA programming guide, environment variables"
_MIG = "NVIDIA MIG user guide, CUDA device enumeration"
# cards that /proc/driver/nvidia does not show: AMD, WSL, Jetson; and NVIDIA's own device
_DEVICES = ("/dev/kfd", "/dev/dxg", "/dev/nvmap", "/dev/nvidiactl")


def _devices(_: Site) -> list[Question]:
    return [("path", device) for device in _DEVICES]


# -- how many --------------------------------------------------------------------------------------


@check("gpu-count", "hardware", asks=_devices, needs=("gpus",), quick=True, source=_CUDA_GUIDE)
def count(site: Site) -> Answer | None:
    """Whether each rank that takes a card finds one."""
    wanted = visible_gpus.wants(site)
    if wanted is False or visible_gpus.is_other(site):
        return None
    if not visible_gpus.of_machine(site):
        return _none(site) if wanted else None
    found = visible_gpus.seen(site)
    ranks = visible_gpus.ranks(site, found) if visible_gpus.binds(site) else 1
    needed, has = max(ranks, 1), len(found.cards)
    if wanted is None and not found.cards:
        return None
    if has < needed:
        return _few(site, found, needed, bad=fail if wanted else warn)
    if found.missing:
        return warn(_missing(site, found), _other_set(site, found))
    who = f"{needed} rank{'s' * (needed > 1)}" if visible_gpus.binds(site) else "the job"
    return ok(f"{has} of {len(visible_gpus.of_machine(site))} cards for {who}")


def _none(site: Site) -> Answer:
    for device in _DEVICES:
        if site.told("path", device)["kind"] is not None:
            raise NotKnown(f"no card is seen, but {device} is there")
    tool = site.known("gpus", "nvidia_smi")
    if tool and not site.known("gpus", "troubles"):  # it would say that there are none
        raise NotKnown(f"{tool} tells of no card, and not that there is none")
    profile = site.profile
    said = "`gpus:`" if "gpus" in site.case.job.origins else "`needs.gpu_memory`"
    who = f"profile `{profile.name}`" if profile else said
    cure = "install NVIDIA's driver, until `nvidia-smi` lists the cards"
    if site.known("system", "container"):
        cure = "start the container with its cards: `docker run --gpus all ...`"
    count = "" if site.plan.processes is not None else " --set gpus=null --set processes=1"
    return fail(
        f"there is no NVIDIA card and no driver; {who} wants cards",
        f"{cure}; or run on the CPU: `--profile cpu{count}`",
        "PyTorch documentation, CUDA semantics",
    )


def _few(
    site: Site, found: visible_gpus.Seen, needed: int, *, bad: Callable[[str, str], Answer]
) -> Answer:
    every = visible_gpus.of_machine(site)
    if found.missing:
        evidence = _missing(site, found)
    elif found.words is not None and len(every) >= needed:
        said = ",".join(found.words)
        evidence = f"CUDA_VISIBLE_DEVICES={said} of {found.where} shows {len(found.cards)} cards"
    else:
        evidence = f"the machine has {_cards(len(every))}"
    evidence += f", and {needed} ranks take one each" if needed > 1 else ", and the job wants one"
    if len(every) >= needed:
        return bad(evidence, _other_set(site, found, needed))
    keys = [key for key in ("processes", "gpus") if key in site.case.job.origins] or ["gpus"]
    return bad(evidence, "`" + " ".join(f"--set {key}={len(every)}" for key in keys) + "`")


def _cards(number: int) -> str:
    return f"{number} card{'' if number == 1 else 's'}"


def _missing(site: Site, found: visible_gpus.Seen) -> str:
    every = visible_gpus.of_machine(site)
    names = ", ".join(found.missing)
    there = visible_gpus.numbers(every)
    return f"CUDA_VISIBLE_DEVICES ({found.where}) names {names}; there are {there}"


def _other_set(site: Site, found: visible_gpus.Seen, needed: int | None = None) -> str:
    """Return how the job names cards that are there."""
    every = visible_gpus.of_machine(site)
    job = site.case.job
    chosen = every[: needed or max(len(found.cards), 1)]
    if "gpus" in job.origins or job.origin("env") == BUILT_IN:
        own = f"`--set 'gpus={visible_gpus.numbers(chosen)}'`"
        if found.where in ("your environment", "the host's environment"):
            return f"`unset CUDA_VISIBLE_DEVICES`, or give the job its cards: {own}"
        return own
    own = f"`gpus: {visible_gpus.numbers(chosen)}`"
    return f"take CUDA_VISIBLE_DEVICES out of `env:`, and name the cards with {own}"


@check("gpu-order", "hardware", needs=("gpus",), quick=True, source=_CUDA_GUIDE)
def order(site: Site) -> Answer | None:
    """Whether the number of a card is the same for CUDA and nvidia-smi, where cards differ."""
    found, names = visible_gpus.seen(site), {card["name"] for card in visible_gpus.of_machine(site)}
    by_number = [word for word in found.words or () if word.isdigit()]
    if len(names) < 2 or not by_number or visible_gpus.wants(site) is False:  # noqa: PLR2004 - different
        return None
    name = "CUDA_DEVICE_ORDER"
    var = site.plan.env.get(name)
    value = site.case.environ.get(name) if var is None and site.case.is_here else var and var.value
    if value == "PCI_BUS_ID":
        return ok("cards are counted in nvidia-smi's order")
    return warn(
        f"the cards differ ({visible_gpus.listed(visible_gpus.of_machine(site))}), and CUDA "
        "counts the fastest "
        f"first: {', '.join(by_number)} may be others than nvidia-smi's",
        "`env: {CUDA_DEVICE_ORDER: PCI_BUS_ID}`",
    )


@check("gpu-slices", "hardware", needs=("gpus",), source=_MIG)
def slices(site: Site) -> Answer | None:
    """Whether several ranks are to share cards that are cut into slices: each sees one slice."""
    if visible_gpus.wants(site) is False or not visible_gpus.of_machine(site):
        return None
    found = visible_gpus.seen(site)
    cut = [card for card in found.cards if card.get("mig")]
    if not cut:
        return None
    ranks = visible_gpus.ranks(site, found)
    if ranks < 2:  # noqa: PLR2004 - several
        return ok(f"one process on a slice of card {cut[0]['index']}")
    whole = [card for card in visible_gpus.of_machine(site) if not card.get("mig")]
    other = f"`--set 'gpus={visible_gpus.numbers(whole)}'` takes the whole cards; " if whole else ""
    return warn(
        f"{_cards(len(cut))} cut into MIG slices, and a process sees one slice: {ranks} ranks "
        "cannot take one each",
        f"{other}`--set processes=1` runs on one slice; `sudo nvidia-smi -mig 0` joins the slices",
    )


# -- of which kind ---------------------------------------------------------------------------------


@check("profile-fits", "hardware", job=False, needs=("gpus",), quick=True)
def profile_fits(site: Site) -> Answer | None:
    """Whether the profile is for the cards that the job uses; names the right one."""
    if (
        visible_gpus.wants(site) is False
        or visible_gpus.is_other(site)
        or not visible_gpus.of_machine(site)
    ):
        return None
    used = [card for card in visible_gpus.seen(site).cards if card["name"]]
    if not used:
        return None
    if site.profile is None:
        return _no_profile(site, used)
    wanted = site.profile.gpu_names
    strange = [card for card in used if wanted and not re.fullmatch(wanted, card["name"])]
    if not wanted:
        return None
    if not strange:
        return ok(f"profile {site.profile.name} is for {visible_gpus.listed(used)}")
    return warn(
        f"profile `{site.profile.name}` is for {site.profile.description or wanted}; "
        f"the cards are {visible_gpus.listed(used)}",
        _right_profile(site, used, strange),
        ", ".join(site.profile.files),
    )


def _right_profile(
    site: Site, used: list[visible_gpus.Card], strange: list[visible_gpus.Card]
) -> str:
    right = _fitting(used)
    if right is not None:
        return f"`--profile {right}`"
    same = [card for card in used if card not in strange]
    if same and site.node is not None:
        return f"`gpus: {visible_gpus.numbers(same)}` takes the cards that it is for"
    where = "its entry" if site.case.resolved is None else site.case.resolved.profile_origin
    return f"no shipped profile is for them: leave `profile` out ({where})"


def _fitting(used: list[visible_gpus.Card]) -> str | None:
    return profile_detection.match_profile({"gpus": {"cards": used}}, shipped()).profile


def shipped() -> list[Profile]:
    """Return the profiles that come with safelaunch."""
    return [profiles.load(name, BUILT_IN, ".") for name in profiles.names()]


def _no_profile(site: Site, used: list[visible_gpus.Card]) -> Answer | None:
    """Say which profile fits; that none is given only matters where it would set something."""
    right = _fitting(used)
    if right is None:
        return None
    if site.node is None:
        return ok(f"{visible_gpus.listed(used)}: profile {right} is for them")
    known = _known(site, {**profile_detection.gate_facts(site.facts), **site.host.facts}, len(used))
    chosen = gates.select(profiles.load(right, BUILT_IN, "."), known, ladder=None, workarounds=True)
    names = [var.name for var in chosen.env if var.name not in site.plan.env]
    if not names:
        return ok(f"profile {right} fits, and would set nothing here")
    return warn(
        f"no profile: {right} is for {visible_gpus.listed(used)}, and sets {', '.join(names)}",
        f"`--profile {right}`; `safelaunch profiles {right}` says why",
    )


def _known(site: Site, facts: dict[str, str], count: int) -> gates.Known:
    job = site.case.job
    gpus = len(job.gpus) or job.topology.processes or count
    return gates.Known(gpus, job.topology.nodes, facts)


@check("profile-facts", "hardware")
def profile_facts(site: Site) -> Answer | None:
    """Whether variables are set only because the hosts file does not declare what is there."""
    profile, real = site.profile, profile_detection.gate_facts(site.facts)
    if profile is None or profile.accelerator != "cuda" or not real:
        return None
    count = visible_gpus.ranks(site, visible_gpus.seen(site))
    before = _known(site, dict(site.host.facts), count)
    after = _known(site, {**real, **site.host.facts}, count)
    on = gates.select(profile, before, ladder=None, workarounds=True)
    off = {v.name for v in gates.select(profile, after, ladder=None, workarounds=True).env}
    env = site.plan.env
    lifted = [
        v.name
        for v in on.env
        if v.name not in off and v.name in env and env[v.name].origin == v.origin
    ]
    if not lifted:
        is_known = real.keys() >= on.undeclared.keys()
        return ok("the profile's conditions are judged on what is there") if is_known else None
    facts = ", ".join(f"{fact} is {real[fact]}" for fact in on.undeclared if fact in real)
    what = job_options.job_words(site)
    save = f"`safelaunch check --host {site.name} --save {what}` writes it into the hosts file"
    if site.case.is_here:
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
def precision(site: Site) -> Answer | None:
    """Whether the cards compute in what the job asks for."""
    asked = _asked(site)
    if asked is None or visible_gpus.wants(site) is False or not visible_gpus.of_machine(site):
        return None
    name, words, key = asked
    used = [(card, _capability(card)) for card in visible_gpus.seen(site).cards]
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
        f"`{words}`, and {visible_gpus.listed(old)} has compute capability "
        f"{old[0]['compute_capability']}: {rule.below}",
        _instead(site, key, words, other),
        rule.source,
    )


def _asked(site: Site) -> tuple[str, str, str] | None:
    """Return the precision that the job asks for, the words that say it, and the key.

    The key is `mixed_precision` of the job, or an option of its program.
    """
    job = site.case.job
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


def _instead(site: Site, key: str, asked: str, other: str) -> str:
    """Return how the job says another precision."""
    if key == "mixed_precision":
        return f"`--set mixed_precision={other}`"
    if not site.case.job.args.is_mapping:
        return f"give the program {other} in place of `{asked}`"
    if key.endswith("dtype"):
        return f"`--set {key}={'bfloat16' if other == 'bf16' else 'float16'}`"
    return f"`--set {key}=null --set args.{other}=true`"


def _capability(card: visible_gpus.Card) -> tuple[int, int] | None:
    match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", str(card["compute_capability"]))
    return (int(match[1]), int(match[2])) if match else None
