"""BLAKE2 from its own module: hashlib loads OpenSSL too, 3 ms of a start."""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

__all__ = ["blake2b"]
