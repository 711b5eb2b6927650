"""Reads any text of the tools that know cards: which tool it was is seen in the text."""

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


def read(text: str, command: str = "") -> Report:
    """Return what a text tells; nothing of it raises.

    `command`, where known, tells what the text leaves open: the fields of rows without a head.
    """
    text = clean(text)
    found = _read(text, command)
    troubles = gpu_errors.read(text) if found.matrix is None and found.peers is None else ()
    if troubles:
        cards = found.cards
        if any(one.kind == "no-devices" for one in troubles):
            cards = cards or ()
        nvml = re.search(r"NVML library version:\s*(\d[\d.]*)", text)
        found = replace(found, troubles=troubles, cards=cards, nvml=nvml[1] if nvml else found.nvml)
    return found


def _read(text: str, command: str) -> Report:
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
    return _lines(text, command)


def _lines(text: str, command: str) -> Report:
    matrix = read_matrix(text)
    if matrix is not None:
        return _of_matrix(matrix.size, Report(vendor="nvidia", matrix=matrix))
    peers = read_peers(text, command)
    if peers is not None:
        return _of_matrix(peers.size, Report(vendor="nvidia", peers=peers))
    links = nvidia_smi_list.read_links(text)
    if links is not None:
        spoken = any(one.state != "unknown" or one.active is not None for one in links.links or ())
        if spoken or "nvlink" in (command + text).lower():
            return links
    return (
        nvidia_smi_list.read_list(text)
        or nvidia_smi_list.read_version(text)
        or nvidia_smi_query.read(text, command)
        or Report()
    )


def _of_matrix(size: int, report: Report) -> Report:
    return replace(report, cards=tuple(Card(index) for index in range(size)))
