"""Reads the health of a GPU from the fields of `nvidia-smi -q`: errors, limits, link, mode.

The text form and the XML, and older drivers, name some fields otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safelaunch.hostfacts.tools.cells import cell_text, parse_number
from safelaunch.hostfacts.tools.report import GpuHealth

if TYPE_CHECKING:
    from collections.abc import Mapping

# ends of the fields below clocks_event_reasons (clocks_throttle_reasons before driver 535)
_SLOWDOWNS = ("sw_power_cap", "hw_thermal_slowdown", "hw_power_brake_slowdown",
              "sw_thermal_slowdown")  # fmt: skip
_REASONS = ("clocks_event_reasons/", "clocks_throttle_reasons/")


def read_health(index: int, fields: Mapping[str, str]) -> GpuHealth:
    """Return the health of a GPU by its fields."""

    def first(*paths: str) -> str | None:
        return next((text for path in paths if (text := cell_text(fields.get(path)))), None)

    def is_yes(*paths: str) -> bool:
        return (first(*paths) or "").lower() in ("yes", "active")

    uncorrected = [
        parse_number(text) or 0
        for path, text in fields.items()
        if path.startswith("ecc_errors/volatile/") and "uncorrectable" in path
    ]
    return GpuHealth(
        index,
        uncorrected=sum(uncorrected) if uncorrected else None,
        ecc=first("ecc_mode/current_ecc", "ecc_mode/current"),
        ecc_pending=first("ecc_mode/pending_ecc", "ecc_mode/pending"),
        remap_pending=is_yes("remapped_rows/remapped_row_pending", "remapped_rows/pending")
        or is_yes("retired_pages/pending_retirement", "retired_pages/pending_page_blacklist"),
        remap_failed=is_yes(
            "remapped_rows/remapped_row_failure", "remapped_rows/remapping_failure_occurred"
        )
        or is_yes("ecc_errors/unrepairable_memory"),
        reset_required=is_yes("gpu_reset_status/reset_required"),
        slowdowns=tuple(
            name
            for name in _SLOWDOWNS
            if any(
                path.startswith(_REASONS) and path.endswith(name) and is_yes(path)
                for path in fields
            )
        ),
        power_limit_w=_watts(
            first("gpu_power_readings/current_power_limit", "power_readings/enforced_power_limit")
        ),
        power_default_w=_watts(
            first("gpu_power_readings/default_power_limit", "power_readings/default_power_limit")
        ),
        width=_lanes(first("pci/pci_gpu_link_info/link_widths/current_link_width",
                           "pci/gpu_link_info/link_width/current")),
        width_max=_lanes(first("pci/pci_gpu_link_info/link_widths/max_link_width",
                               "pci/gpu_link_info/link_width/max")),
        compute_mode=first("compute_mode"),
        cluster=first("fabric/clusteruuid", "fabric/cluster_uuid"),
    )  # fmt: skip


def _watts(text: str | None) -> float | None:
    try:
        return float((text or "").split(" ")[0])
    except ValueError:
        return None


def _lanes(text: str | None) -> int | None:
    return parse_number((text or "").rstrip("x"))
