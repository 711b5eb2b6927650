"""`~`, `%` tokens, `${NAME}` and times of an ssh_config, as ssh_config(5) has them."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from safelaunch.errors import ConfigError
from safelaunch.runtime.units import SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from safelaunch.ssh.config.local_user import Local

_UNITS = {**SECONDS, "": 1, "w": 7 * SECONDS["d"]}


class Unset(Exception):  # noqa: N818 - reads as what happened
    """A variable that the text needs is not set; the message is its name."""


def tokens(text: str, known: Mapping[str, str], where: str | None) -> str:
    """Return the text with `%h` and its like filled in. Raises ConfigError for one not known."""

    def value(found: re.Match[str]) -> str:
        key = found[1]
        if key == "%":
            return "%"
        if key not in known:
            raise ConfigError(
                f"`%{key}` cannot stand in `{text}`",
                where=where,
                hint="known here: " + " ".join(f"%{name}" for name in (*known, "%")),
            )
        return known[key]

    return re.sub(r"%(.?)", value, text, flags=re.DOTALL)


def variables(text: str, environ: Mapping[str, str]) -> str:
    """Return the text with each `${NAME}` replaced. Raises Unset."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in environ:
            raise Unset(found[1])
        return environ[found[1]]

    return re.sub(r"\$\{([^}]*)\}", value, text)


def home(path: str, local: Local) -> str:
    """Return the path with a leading `~` or `~user` replaced."""
    if not path.startswith("~"):
        return path
    if path == "~":
        return local.home
    if path[1] == "/" or (local.windows and path[1] == "\\"):
        return str(local.path.join(local.home, path[2:].lstrip("/")))
    return path if local.windows else os.path.expanduser(path)


def file_name(text: str, known: Mapping[str, str], local: Local, where: str | None) -> str:
    """Return the path that a setting names. Raises ConfigError, or Unset."""
    return variables(tokens(home(text, local), known, where), local.environ)


def seconds(text: str, where: str | None) -> float | None:
    """Return a time such as `90`, `1m30s`; None for `none`. Raises ConfigError."""
    if text.lower() == "none":
        return None
    if not re.fullmatch(r"(?i)([0-9]{1,9}[smhdw]?)+", text):
        raise ConfigError(f"`{text}` is no time", where=where, hint="such as 90, 90s, 10m, 1h30m")
    parts = re.findall(r"([0-9]+)([smhdw]?)", text.lower())
    return float(sum(int(count) * _UNITS[unit] for count, unit in parts))
