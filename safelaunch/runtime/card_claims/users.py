"""Names of the accounts of a machine."""

# ruff: noqa: PLC0415 - pwd is missing on Windows, where a client imports this module

from __future__ import annotations


def user_name(uid: int) -> str:
    """Return the name of an account, or its number."""
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return str(uid)
