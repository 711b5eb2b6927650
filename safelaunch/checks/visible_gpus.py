"""Which cards of a machine a job uses: what the plan leaves of CUDA_VISIBLE_DEVICES. No checks."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from safelaunch import environ, launchers
from safelaunch.checks.answers import NotKnown
from safelaunch.checks.job_options import outside

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from safelaunch.checks.context import Site

CUDA = "CUDA_VISIBLE_DEVICES"
Card = dict[str, Any]  # an entry of `gpus.cards` of the facts


class Seen(NamedTuple):
    """The cards that a job sees. `words` is what CUDA_VISIBLE_DEVICES names; None: all cards."""

    words: tuple[str, ...] | None
    cards: tuple[Card, ...]
    missing: tuple[str, ...]  # words that name no card
    where: str = ""  # who says it


def of_machine(site: Site) -> list[Card]:
    """Return all cards of the machine; an empty list where there are none. Raises NotKnown."""
    cards: list[Card] | None = site.known("gpus", "cards")
    if not cards and site.known("gpus", "count") is None:
        late = site.known("gpus", "late", "query")
        raise NotKnown(f"the cards are not known: {late or 'nvidia-smi tells nothing'}")
    return cards or []


def seen(site: Site) -> Seen:
    """Return the cards that the job's processes see, in their order. Raises NotKnown.

    What stands behind a name of no card is not seen either (CUDA programming guide).
    """
    cards = of_machine(site)
    said, where = visible(site)
    if said is None:
        return Seen(None, tuple(cards), ())
    words = tuple(word.strip() for word in said.split(",") if word.strip())
    named = [_named(word, cards, site.known("gpus", "slices")) for word in words]
    missing = [word for word, card in zip(words, named, strict=True) if card is None]
    found = itertools.takewhile(lambda card: card is not None, named)
    return Seen(words, tuple(card for card in found if card), tuple(missing), where)


def _named(
    word: str, cards: Sequence[Card], slices: Sequence[dict[str, Any]] | None
) -> Card | None:
    """Return the card that a word names: an index, a UUID or its beginning, a slice of it."""
    if word.startswith("MIG-"):
        if slices is None:
            raise NotKnown("the slices of the cards are not known")
        of = next((one["card"] for one in slices if str(one["uuid"]).startswith(word)), None)
        return next((card for card in cards if card["index"] == of), None)
    for card in cards:
        is_uuid = word.startswith("GPU-") and str(card["uuid"]).startswith(word)
        if is_uuid or word == str(card["index"]):
            return card
    if word.startswith("GPU-") and any(card["uuid"] is None for card in cards):
        raise NotKnown("the UUIDs of the cards are not known")
    return None


def numbered(site: Site, words: Iterable[str]) -> set[str]:
    """Return names of cards as numbers where the machine's cards are known, so they compare."""
    found = set()
    for word in words:
        try:
            card = _named(word, site.known("gpus", "cards") or (), site.known("gpus", "slices"))
        except NotKnown:
            card = None
        # two slices of a card are not the same
        same = card is None or word.startswith("MIG-")
        found.add(word if same or card is None else str(card["index"]))
    return found


def visible(site: Site) -> tuple[str | None, str]:
    """Return CUDA_VISIBLE_DEVICES as the job will have it, and who sets it; None: not set."""
    if site.node is None:
        return None, ""
    if CUDA in site.node.env:
        var = site.node.env[CUDA]
        return (None if var.value is None else str(var.value)), str(var.origin)
    if site.node.keep is not None and not environ.matches(CUDA, site.node.keep):
        return None, ""
    where = "your environment" if site.case.is_here else "the host's environment"
    return outside(site).get(CUDA), where


def wants(site: Site) -> bool | None:
    """Whether the machine is to compute on cards, for the job; None where nothing says it."""
    if site.profile is not None:
        return site.profile.accelerator == "cuda"
    if site.node is None:
        return None
    said, _ = visible(site)
    if said is not None and said.strip() in ("", "-1", "NoDevFiles"):
        return False
    var = site.node.env.get("ACCELERATE_USE_CPU")
    if site.case.job.launcher_args.has("cpu") or (var is not None and var.value == "true"):
        return False
    is_said = "gpus" in site.case.job.origins or site.case.job.needs.gpu_memory is not None
    return True if is_said else None


def is_other(site: Site) -> bool:
    """Whether the machine computes on cards of another vendor."""
    others = site.known("gpus", "other_tools") and not site.known("gpus", "cards")
    return bool(site.known("torch", "hip") or others)


def binds(site: Site) -> bool:
    """Whether the launcher starts ranks of which each takes the card of its local rank."""
    return launchers.load(site.case.job.launcher).binds_gpus(site.case.job)


def ranks(site: Site, found: Seen) -> int:
    """Return how many ranks the job starts here."""
    processes = site.plan.processes
    return len(found.cards) if processes is None else processes


def listed(cards: Sequence[Card]) -> str:
    """Return the names of cards as a line: `4 x NVIDIA A100-SXM4-80GB`."""
    counts: dict[str, int] = {}
    for card in cards:
        name = str(card["name"] or "without a name")
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{count} x {name}" for name, count in counts.items())


def numbers(cards: Iterable[Card]) -> str:
    """Return the indices of cards as a job file lists them: `[0, 1]`."""
    return "[" + ", ".join(str(card["index"]) for card in cards) + "]"
