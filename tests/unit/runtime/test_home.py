from __future__ import annotations

import pytest

from safelaunch.errors import ConfigError
from safelaunch.runs import store
from safelaunch.runtime.home import home


def test_home_is_a_folder_of_the_home_folder() -> None:
    assert home({"HOME": "/home/me"}) == "/home/me/.safelaunch"


def test_another_home_is_taken_as_it_is() -> None:
    assert home({"HOME": "/home/me", "SAFELAUNCH_HOME": "/scratch/me"}) == "/scratch/me"


def test_an_empty_name_is_none() -> None:
    assert home({"HOME": "/home/me", "SAFELAUNCH_HOME": ""}) == "/home/me/.safelaunch"


@pytest.mark.parametrize("environ", [{"SAFELAUNCH_HOME": "runs"}, {"HOME": "me"}])
def test_a_relative_home_is_an_error(environ: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"home|HOME"):
        home(environ)
    with pytest.raises(ConfigError) as caught:
        store.home(environ)
    assert caught.value.hint == "export SAFELAUNCH_HOME=/some/folder"
