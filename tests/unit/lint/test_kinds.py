"""What a file is: the rules must know the keys that our own readers know."""

from __future__ import annotations

import pytest

from safelaunch.config.schema.files import JOB, PROFILE
from safelaunch.lint import kinds
from safelaunch.lint.kinds import FileKind, kind_by_keys


def test_the_keys_of_our_files_are_those_of_their_declaration() -> None:
    assert {key.name for key in JOB.keys} == kinds._JOB
    assert {key.name for key in PROFILE.keys} == kinds._PROFILE


@pytest.mark.parametrize(
    ("path", "keys", "parents", "kind"),
    [
        ("a.yaml", {"extends", "env"}, ["base.yaml"], FileKind.JOB),
        ("a.yaml", {"extends", "recovery", "name"}, ["x/a.yml", "b.yaml"], FileKind.JOB),
        ("a.yaml", {"extends", "env"}, ["eslint:recommended"], FileKind.TRAINING),
        ("a.yaml", {"extends", "name"}, ["base.yaml"], FileKind.TRAINING),
        ("a.yaml", {"extends", "env", "model"}, ["base.yaml"], FileKind.TRAINING),
        ("a.yaml", {"env"}, [], FileKind.TRAINING),
    ],
)
def test_a_file_that_only_changes_a_job_is_one(
    path: str, keys: set[str], parents: list[str], kind: FileKind
) -> None:
    assert kind_by_keys(path, keys, None, parents) is kind


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ("zero_optimization", FileKind.DEEPSPEED),
        ("zero_optimization tran_batch_size", FileKind.DEEPSPEED),
        ("zero_optimization fp16 optimizer num_layers hidden_size", FileKind.DEEPSPEED),
        ("zero_optimization fp16 num_layers hidden_size seq_length", FileKind.TRAINING),
        ("steps_per_print wall_clock_breakdown a b c", FileKind.TRAINING),
    ],
)
def test_a_file_with_more_keys_of_a_trainer_than_of_deepspeed_is_the_trainers(
    keys: str, kind: FileKind
) -> None:
    assert kind_by_keys("a.yml", set(keys.split()), None) is kind
