"""Parses the output of any GPU tool; recognises the tool by the text."""

from __future__ import annotations

import re
from dataclasses import replace

from safelaunch.hostfacts.tools import (
    env_reports,
    gpu_errors,
    nvidia_smi_list,
    nvidia_smi_q,
    nvidia_smi_query,
    nvidia_smi_table,
    other_vendors,
)
from safelaunch.hostfacts.tools.cells import clean
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
    if errors := gpu_errors.read_errors(text):
        has_none = any(error.kind == "no-devices" for error in errors)
        cards = report.cards or () if has_none else report.cards
        match = re.search(r"NVML library version:\s*(\d[\d.]*)", text)
        nvml = match[1] if match else report.nvml
        report = replace(report, troubles=errors, cards=cards, nvml=nvml)
    return report


def _read_tool(text: str, command: str) -> Report:
    vendor = None if env_reports.is_report(text) else other_vendors.vendor_of(text)
    if vendor is not None and "NVIDIA-SMI" not in text:
        return other_vendors.read(text, vendor)
    if nvidia_smi_q.is_xml(text):
        return nvidia_smi_q.read_xml(text)
    if env_reports.is_report(text):
        return env_reports.read(text)
    if nvidia_smi_q.is_text(text):
        return nvidia_smi_q.read_text(text)
    if nvidia_smi_table.is_table(text):
        return nvidia_smi_table.read(text)
    return _read_lines(text, command)


def _read_lines(text: str, command: str) -> Report:
    matrix = read_matrix(text)
    if matrix is not None:
        return _with_cards(matrix.size, Report(vendor="nvidia", matrix=matrix))
    peers = read_peers(text, command)
    if peers is not None:
        return _with_cards(peers.size, Report(vendor="nvidia", peers=peers))
    links = nvidia_smi_list.read_links(text)
    if links is not None:
        states = [(link.state, link.active) for link in links.links or ()]
        has_links = any(state != ("unknown", None) for state in states)
        if has_links or "nvlink" in (command + text).lower():
            return links
    return (
        nvidia_smi_list.read_list(text)
        or nvidia_smi_list.read_version(text)
        or nvidia_smi_query.read(text, command)
        or Report()
    )


def _with_cards(size: int, report: Report) -> Report:
    return replace(report, cards=tuple(Card(index) for index in range(size)))
