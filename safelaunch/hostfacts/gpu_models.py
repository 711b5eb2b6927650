"""Which hardware a card's name stands for: the ids of the facts about platforms."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Model(NamedTuple):
    """A platform; `name` matches whole names, `stem` what must be seen of one that was cut."""

    id: str
    vendor: str
    name: re.Pattern[str]
    stem: re.Pattern[str]


def _model(model_id: str, name: str, stem: str, vendor: str = "nvidia") -> Model:
    # drivers before 465 print most names without the vendor, some of later ones as well
    lead = "(?:NVIDIA )?" if vendor == "nvidia" else ""
    return Model(model_id, vendor, re.compile(lead + name), re.compile(lead + stem))


# Whole names, never parts: "RTX 40" is in "RTX 4000 Ada", "A10" in "A100". The driver's product
# list says which there are. What stems leave open (Laptop GPUs) stays unknown.
MODELS = (
    _model("rtx3090", r"GeForce RTX 3090( Ti)?", r"GeForce RTX 3090"),
    _model("rtx4090", r"GeForce RTX 4090( D)?", r"GeForce RTX 4090 D"),
    _model("rtx5090", r"GeForce RTX 5090( D( v2)?)?", r"GeForce RTX 5090 D"),
    _model("rtxa6000", r"RTX A6000", r"RTX A600"),
    _model("rtx6000ada", r"RTX 6000 Ada Generation", r"RTX 6000"),
    _model(
        "rtxpro6000",
        r"RTX PRO 6000 Blackwell( Max-Q)? (Workstation|Server) Edition",
        r"RTX PRO 6000 B(?!.*Laptop)",
    ),
    _model("v100", r"Tesla V100S?-(SXM[23]|PCIE|DGXS)-(16|32)GB(-LS)?", r"Tesla V100S?-[SPD]"),
    _model("t4", r"(Tesla )?T4", r"Tesla T4$"),
    _model("l4", r"L4", r"L4$"),
    _model("l40s", r"L40S?", r"L40S?$"),
    _model("a10", r"A10[GM]?", r"A10[GM]?$"),
    _model("a100-pcie", r"A100(-PCIE-40GB| 80GB PCIe)", r"A100(-P| 8)"),
    _model("a100-sxm", r"A100-SXM4?-(40|64|80)GB", r"A100-SXM"),
    _model("a800", r"A800(-SXM4-(40|80)GB| 80GB PCIe( LC)?| 40GB Active)", r"A800(-S| 8| 4)"),
    _model("h100-sxm", r"H100( 80GB HBM3| SXM5 .*)?", r"H100 (8|SXM)"),
    _model("h100-pcie", r"H100 (PCIe|NVL)", r"H100 (PC|NV)"),
    _model("h800", r"H800( SXM.*)?", r"H800 S"),
    _model("h20", r"H20(-3e| NVL16)?", r"H20(-| N)"),
    _model("h200", r"H200( NVL)?", r"H200 N"),
    _model("gh200", r"GH200 (120GB|480GB|144G HBM3e)", r"GH200 \d"),
    _model("b200", r"B200", r"B200$"),
    _model("mi250x", r"AMD (Instinct|INSTINCT) MI250X.*", r"AMD (Instinct|INSTINCT) MI250X", "amd"),
    _model("mi300x", r"AMD (Instinct|INSTINCT) MI300X.*", r"AMD (Instinct|INSTINCT) MI300X", "amd"),
    _model("ascend910b", r"(Ascend ?)?910B([1-4](C|-1|_1)?)?", r"(Ascend ?)?910B", "huawei"),
)


def is_cut(name: str) -> bool:
    """Whether a tool has shortened a name."""
    return name.endswith(("...", "…"))


def model_of(name: str | None, vendor: str | None = None) -> str | None:
    """Return the platform of a name; None where there is no entry for it, or it says too little."""
    if name is None:
        return None
    shown = name.rstrip(".…").strip()
    for model in MODELS:
        if vendor not in (None, model.vendor):
            continue
        if model.stem.match(shown) if is_cut(name) else model.name.fullmatch(shown):
            return model.id
    return None


def models_of(names: Iterable[str | None], vendor: str | None = None) -> tuple[str | None, ...]:
    """Return the platforms of a host: one for each model, in the order in which they appear."""
    by_name = {name: model_of(name, vendor) for name in names}
    known = [model for model in by_name.values() if model is not None]
    if not known:
        return ()
    if len(set(known)) == 1 and len(known) == len(by_name):
        return (known[0],)
    return tuple(by_name.values())
