"""Expand `~`, `%` tokens and `${NAME}`, and parse times, as ssh_config(5) specifies."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.runtime.units import SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.ssh.config.local_user import LocalUser

_UNITS = {**SECONDS, "": 1, "w": 7 * SECONDS["d"]}


class UnsetVariable(Exception):  # noqa: N818 - reads as what happened
    """A variable in the text is not set; the message is its name."""


def expand_percent_tokens(text: str, values: Mapping[str, str], where: str | None) -> str:
    """Return the text with tokens such as `%h` replaced. Raises ConfigError for an unknown one."""

    def value(match: re.Match[str]) -> str:
        key = match[1]
        if key == "%":
            return "%"
        if key not in values:
            raise ConfigError(
                f"`%{key}` is not supported in `{text}`",
                where=where,
                hint="supported: " + " ".join(f"%{name}" for name in (*values, "%")),
            )
        return values[key]

    return re.sub(r"%(.?)", value, text, flags=re.DOTALL)


def expand_variables(text: str, environ: Mapping[str, str]) -> str:
    """Return the text with each `${NAME}` replaced. Raises UnsetVariable."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in environ:
            raise UnsetVariable(match[1])
        return environ[match[1]]

    return re.sub(r"\$\{([^}]*)\}", value, text)


def expand_home(path: str, local: LocalUser) -> str:
    """Return the path with a leading `~` or `~user` replaced."""
    if not path.startswith("~"):
        return path
    if path == "~":
        return local.home
    if path[1] == "/" or (local.windows and path[1] == "\\"):
        return str(local.path.join(local.home, path[2:].lstrip("/")))
    return path if local.windows else os.path.expanduser(path)


def expand_path(text: str, values: Mapping[str, str], local: LocalUser, where: str | None) -> str:
    """Return a path with `~`, tokens and variables expanded. Raises ConfigError, UnsetVariable."""
    return expand_variables(
        expand_percent_tokens(expand_home(text, local), values, where), local.environ
    )


def parse_seconds(text: str, where: str | None) -> float | None:
    """Return the seconds of a time such as `90` or `1m30s`; None for `none`. Raises ConfigError."""
    if text.lower() == "none":
        return None
    if not re.fullmatch(r"(?i)([0-9]{1,9}[smhdw]?)+", text):
        raise ConfigError(
            f"`{text}` is not a time", where=where, hint="such as 90, 90s, 10m, 1h30m"
        )
    parts = re.findall(r"([0-9]+)([smhdw]?)", text.lower())
    return float(sum(int(count) * _UNITS[unit] for count, unit in parts))
