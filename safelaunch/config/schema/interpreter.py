"""`python`, `venv` or `conda` to the one interpreter that runs the job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safelaunch.errors import ConfigError
from safelaunch.model import Interpreter, Origin, Word, join_path, parent_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def read_interpreter(
    values: Mapping[str, Any],
    origins: Mapping[str, Origin],
    absolute: Callable[[str, Origin], Word],
) -> Interpreter | None:
    """Return the interpreter that the keys name, or None. `absolute` resolves a path of a file."""
    given = [key for key in ("python", "venv", "conda") if key in values]
    if len(given) > 1:
        raise ConfigError(
            f"`{given[0]}` and `{given[1]}` together",
            where=origins[given[1]],
            hint=f"give one; `{given[0]}: null` removes an inherited one",
        )
    if not given:
        return None
    key = given[0]
    origin, value = origins[key], str(values[key])
    if key == "python":
        if "/" not in value:
            raise ConfigError(
                f"`python: {value}` is no path",
                where=origin,
                hint="write it absolute, or ./relative",
            )
        path = absolute(value, origin)
        return Interpreter(path, "python", parent_path(parent_path(path)), origin)
    prefix = absolute(value, origin) if key == "venv" else _conda(value, values, origins, absolute)
    return Interpreter(join_path(prefix, "bin", "python"), key, prefix, origin)


def _conda(
    name: str,
    values: Mapping[str, Any],
    origins: Mapping[str, Origin],
    absolute: Callable[[str, Origin], Word],
) -> Word:
    root = values.get("conda_root")
    if root is None:
        raise ConfigError(
            "`conda` needs `conda_root`, where conda is installed",
            where=origins["conda"],
            hint="for example `conda_root: /opt/conda`; or give `python:` with the whole path",
        )
    base = absolute(str(root), origins["conda_root"])
    return base if name == "base" else join_path(base, "envs", name)
