"""What a file is: the rules must know the keys that our own readers know."""

from __future__ import annotations

import pytest

from safelaunch.config.schema.files import JOB, PROFILE
from safelaunch.lint import file_kinds
from safelaunch.lint.file_kinds import Kind, by_keys


def test_the_keys_of_our_files_are_those_of_their_declaration() -> None:
    assert {key.name for key in JOB.keys} == file_kinds._JOB
    assert {key.name for key in PROFILE.keys} == file_kinds._PROFILE


@pytest.mark.parametrize(
    ("path", "keys", "parents", "kind"),
    [
        ("a.yaml", {"extends", "env"}, ["base.yaml"], Kind.JOB),
        ("a.yaml", {"extends", "recovery", "name"}, ["x/a.yml", "b.yaml"], Kind.JOB),
        ("a.yaml", {"extends", "env"}, ["eslint:recommended"], Kind.TRAINING),
        ("a.yaml", {"extends", "name"}, ["base.yaml"], Kind.TRAINING),
        ("a.yaml", {"extends", "env", "model"}, ["base.yaml"], Kind.TRAINING),
        ("a.yaml", {"env"}, [], Kind.TRAINING),
    ],
)
def test_a_file_that_only_changes_a_job_is_one(
    path: str, keys: set[str], parents: list[str], kind: Kind
) -> None:
    assert by_keys(path, keys, None, parents) is kind
