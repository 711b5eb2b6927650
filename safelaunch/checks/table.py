"""Which modules declare checks."""

from __future__ import annotations

import importlib

# those with checks that are made before each start; a start loads no others
QUICK = (
    "environment",
    "hardware",
    "devices",
    "room",
    "interfaces",
    "ports",
    "files",
    "outputs",
    "program",
    "numbers",
)
OTHERS = (
    "models",
    "libraries",
    "pairs",
    "packages",
    "extensions",
    "alike",
    "fabric",
    "network",
)
MODULES = (*QUICK, *OTHERS)


def load(*, is_quick: bool = False) -> None:
    """Import the modules that declare checks, or of them those with quick ones."""
    for name in QUICK if is_quick else MODULES:
        importlib.import_module(f"safelaunch.checks.{name}")
