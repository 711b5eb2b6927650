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
    keys = [key for key in ("python", "venv", "conda") if key in values]
    if not keys:
        return None
    if len(keys) > 1:
        raise ConfigError(
            f"`{keys[0]}` and `{keys[1]}` together",
            where=origins[keys[1]],
            hint=f"give one; `{keys[0]}: null` removes an inherited one",
        )
    key = keys[0]
    origin, value = origins[key], str(values[key])
    if key == "python":
        if "/" not in value:
            hint = "write it absolute, or ./relative"
            raise ConfigError(f"`python: {value}` is no path", where=origin, hint=hint)
        path = absolute(value, origin)
        return Interpreter(path, "python", parent_path(parent_path(path)), origin)
    if key == "venv":
        prefix = absolute(value, origin)
    elif "conda_root" not in values:
        raise ConfigError(
            "`conda` needs `conda_root`, where conda is installed",
            where=origin,
            hint="for example `conda_root: /opt/conda`; or give `python:` with the whole path",
        )
    else:
        prefix = absolute(str(values["conda_root"]), origins["conda_root"])
        prefix = prefix if value == "base" else join_path(prefix, "envs", value)
    return Interpreter(join_path(prefix, "bin", "python"), key, prefix, origin)
