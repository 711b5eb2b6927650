"""Lines for a user's shell, with kubectl."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def create_secret(name: str, variables: Iterable[str], where: str = "") -> str:
    """Return the line that makes a Secret of variables; no other program sees their values.

    `where` are options of kubectl.
    """
    files = " ".join(f'--from-file={key}=<(printf %s "${key}")' for key in variables)
    return f"kubectl{where} create secret generic {name} {files}"
