"""Parses the output of any GPU tool; recognises the tool by the text."""

from __future__ import annotations

import re
from dataclasses import replace

from safelaunch.hostfacts.tools import env_reports, gpu_errors, other_vendors
from safelaunch.hostfacts.tools.cells import clean
from safelaunch.hostfacts.tools.nvidia_smi import full_report, gpu_list, query, summary_table
from safelaunch.hostfacts.tools.report import Card, Report
from safelaunch.hostfacts.tools.topology_matrix import read_matrix, read_peers


def read_report(text: str, command: str = "") -> Report:
    """Return the contents of a tool's output; never raises.

    `command`, if known, gives what the text lacks: the fields of rows without a header.
    """
    text = clean(text)
    report = _read_tool(text, command)
    if report.matrix is not None or report.peers is not None:
        return report
    errors = gpu_errors.read_errors(text)
    if any(error.kind == "no-devices" for error in errors):
        report = replace(report, cards=report.cards or ())
    nvml = re.search(r"NVML library version:\s*(\d[\d.]*)", text) if errors else None
    return replace(report, troubles=errors, nvml=nvml[1] if nvml else report.nvml)


def _read_tool(text: str, command: str) -> Report:
    is_env_report = env_reports.is_report(text)
    vendor = None if is_env_report else other_vendors.vendor_of(text)
    if vendor is not None and "NVIDIA-SMI" not in text:
        return other_vendors.read(text, vendor)
    if full_report.is_xml(text):
        return full_report.read_xml(text)
    if is_env_report:
        return env_reports.read(text)
    if full_report.is_text(text):
        return full_report.read_text(text)
    if summary_table.is_table(text):
        return summary_table.read(text)
    return _read_lines(text, command)


def _read_lines(text: str, command: str) -> Report:
    matrix = read_matrix(text)
    if matrix is not None and re.search(r"\btopo -mp\b", command + "\n" + text):
        matrix = replace(matrix, is_pcie_only=True)
    peers = read_peers(text, command) if matrix is None else None
    table = matrix or peers
    if table is not None:
        cards = tuple(map(Card, range(table.size)))
        return Report(vendor="nvidia", cards=cards, matrix=matrix, peers=peers)
    links = gpu_list.read_links(text)
    if links is not None and (
        any(link.state != "unknown" or link.recoveries is not None for link in links.links or ())
        or "nvlink" in (command + text).lower()
    ):
        return links
    return (
        gpu_list.read_list(text)
        or gpu_list.read_version(text)
        or query.read(text, command)
        or Report()
    )
