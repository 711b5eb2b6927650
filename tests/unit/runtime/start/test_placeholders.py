"""Files with placeholders, filled in with values that fit the quotes around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from safelaunch.runtime.start import placeholders

if TYPE_CHECKING:
    from pathlib import Path

NAMES = {"port": "safelaunchport1", "run-dir": "safelaunch rundir1"}


def _filled(folder: Path, **values: str) -> str:
    (folder / "unbound").mkdir()
    (folder / "unbound" / "launch.sh").write_text("p=safelaunchport1 d='safelaunch rundir1/x'\n")
    names = {name.replace("_", "-"): value for name, value in values.items()}
    placeholders.fill(str(folder), NAMES, names)
    return (folder / "launch.sh").read_text()


def test_a_path_may_have_blanks_where_its_placeholder_is_in_quotes(tmp_path: Path) -> None:
    assert _filled(tmp_path, port="1", run_dir="/my runs (é)") == "p=1 d='/my runs (é)/x'\n"


@pytest.mark.parametrize(
    "values", [{"port": "1 2"}, {"run_dir": "/it's"}, {"run_dir": '/a"b'}, {"run_dir": "/a\\b"},
               {"run_dir": "/a\nb"}, {"port": ""}],
)  # fmt: skip
def test_a_value_that_would_need_other_quotes_is_refused(
    tmp_path: Path, values: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match="has unusual characters"):
        _filled(tmp_path, **values)
    assert not (tmp_path / "launch.sh").exists()
