"""Maps the names of GPUs to platform ids."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Model(NamedTuple):
    """A platform; `name` matches full names, `stem` matches the start of truncated names."""

    id: str
    vendor: str
    name: re.Pattern[str]
    stem: re.Pattern[str]


def _model(model_id: str, name: str, stem: str, vendor: str = "nvidia") -> Model:
    # drivers before 465 print most names without the vendor, some later ones do too
    lead = "(?:NVIDIA )?" if vendor == "nvidia" else ""
    return Model(model_id, vendor, re.compile(lead + name), re.compile(lead + stem))


# Full names, never parts: "RTX 40" is in "RTX 4000 Ada", "A10" in "A100". The names are from the
# driver's product list. Truncated names that a stem cannot tell apart (Laptop GPUs) stay unknown.
MODELS = (
    _model("rtx3090", r"GeForce RTX 3090( Ti)?", r"GeForce RTX 3090"),
    _model("rtx4090", r"GeForce RTX 4090( D)?", r"GeForce RTX 4090 D"),
    _model("rtx5090", r"GeForce RTX 5090( D( v2)?)?", r"GeForce RTX 5090 D"),
    _model("rtxa6000", r"RTX A6000", r"RTX A600"),
    _model("rtx6000ada", r"RTX (6000|5880) Ada Generation", r"RTX (6000|5880 A)"),
    _model(
        "rtxpro6000",
        r"RTX PRO 6000 Blackwell( Max-Q)? (Workstation|Server) Edition",
        r"RTX PRO 6000 B(?!.*Laptop)",
    ),
    _model("v100", r"Tesla V100S?-(SXM[23]|PCIE|DGXS)-(16|32)GB(-LS)?", r"Tesla V100S?-[SPD]"),
    _model("t4", r"(Tesla )?T4", r"Tesla T4$"),
    _model("l4", r"L4", r"L4$"),
    _model("l20", r"L20", r"L20$"),
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
    _model("b300", r"B300 SXM6 AC", r"B300 S"),
    _model("gb200", r"GB200", r"GB200$"),
    _model("gb300", r"GB300", r"GB300$"),
    _model("gb10", r"GB10", r"GB10$"),
    _model("mi250x", r"AMD (Instinct|INSTINCT) MI250X.*", r"AMD (Instinct|INSTINCT) MI250X", "amd"),
    _model("mi300x", r"AMD (Instinct|INSTINCT) MI300X.*", r"AMD (Instinct|INSTINCT) MI300X", "amd"),
    _model("mi325x", r"AMD (Instinct|INSTINCT) MI325X.*", r"AMD (Instinct|INSTINCT) MI325X", "amd"),
    _model("mi355x", r"AMD (Instinct|INSTINCT) MI35[05]X.*", r"AMD Instinct MI35[05]X", "amd"),
    _model("ascend910c", r"Ascend910", r"Ascend910$", "huawei"),
    _model("ascend910b", r"(Ascend ?)?910B([1-4](C|-1|_1)?)?", r"(Ascend ?)?910B", "huawei"),
)


def is_truncated(name: str) -> bool:
    """Whether a tool has truncated a name."""
    return name.endswith(("...", "…"))


def model_of(name: str | None, vendor: str | None = None) -> str | None:
    """Return the platform id of a GPU name; None if there is no entry, or the name is ambiguous."""
    if name is None:
        return None
    stem = name.rstrip(".…").strip()
    for model in MODELS:
        if vendor not in (None, model.vendor):
            continue
        if model.stem.match(stem) if is_truncated(name) else model.name.fullmatch(stem):
            return model.id
    return None


def models_of(names: Iterable[str | None], vendor: str | None = None) -> tuple[str | None, ...]:
    """Return the platform ids of a host's GPUs, one for each model in order of appearance."""
    by_name = {name: model_of(name, vendor) for name in names}
    models = [model for model in by_name.values() if model is not None]
    if not models:
        return ()
    if len(set(models)) == 1 and len(models) == len(by_name):
        return (models[0],)
    return tuple(by_name.values())
