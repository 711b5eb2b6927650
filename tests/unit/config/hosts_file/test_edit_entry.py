from __future__ import annotations

import pytest

from safelaunch.config.hosts_file.edit_entry import with_changes
from safelaunch.errors import ConfigError

TEXT = """# mine
hosts:
  a:
    user: me
  b:  # the new one
    address: 10.0.0.5   # in the rack
    port: '22'
    conda: rl           # shared
    conda_root: /opt/conda
    env:
      A: b
# all of them
groups: {all: [a, b]}
"""
CHANGES: dict[str, tuple[dict[str, str | None], dict[str, str]]] = {
    "a value": ({"address": "10.0.0.6"}, {"10.0.0.5   #": "10.0.0.6   #"}),
    "a quoted value": ({"port": "2201"}, {"'22'": "2201"}),
    "a value that needs quotes": ({"address": "fe80::1"}, {"10.0.0.5": "fe80::1"}),
    "a new key": ({"user": "me"}, {"# the new one\n": "# the new one\n    user: me\n"}),
    "no more": ({"port": None}, {"    port: '22'\n": ""}),
    "another interpreter": (
        {"python": "/usr/bin/python3"},
        {
            "# the new one\n": "# the new one\n    python: /usr/bin/python3\n",
            "    conda: rl           # shared\n    conda_root: /opt/conda\n": "",
        },
    ),
    "several": (
        {"address": None, "ssh": "lab", "port": None},
        {
            "    address: 10.0.0.5   # in the rack\n    port: '22'\n": "",
            "# the new one\n": "# the new one\n    ssh: lab\n",
        },
    ),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["unix", "windows"])
def test_a_change_leaves_all_else_as_it_is(what: str, end: str) -> None:
    changes, replaced = CHANGES[what]
    expected = TEXT
    for old, new in replaced.items():
        assert old in expected
        expected = expected.replace(old, new)
    text = TEXT.replace("\n", end)
    assert with_changes(text, "hosts.yaml", "b", changes) == expected.replace("\n", end)


def test_an_entry_that_says_nothing_gets_its_first_key() -> None:
    text = "hosts:\n    a:  # by ssh_config\n    b:"
    new = with_changes(text, "hosts.yaml", "a", {"profile": "cpu"})
    assert new == "hosts:\n    a:  # by ssh_config\n        profile: cpu\n    b:\n"
    assert with_changes(text, "hosts.yaml", "b", {"user": "me"}).endswith("b:\n        user: me\n")


@pytest.mark.parametrize(
    "text",
    [
        "hosts:\n  a: {user: you}\n",
        "hosts: {a: {user: you}}\n",
        "hosts:\n  b: &b\n    user: you\n  a: *b\n",
        "hosts:\n  a:\n    user: >\n      you\n",
        "hosts:\n  a:\n    user: &u you\n",
        "hosts:\n  a: ~\n",
    ],
)
def test_what_only_its_author_should_change_is_left_alone(text: str) -> None:
    with pytest.raises(ConfigError, match="cannot be changed") as caught:
        with_changes(text, "hosts.yaml", "a", {"user": "me", "port": None})
    assert "change it by hand: user: me; no port" in (caught.value.hint or "")
