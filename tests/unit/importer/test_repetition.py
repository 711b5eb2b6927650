from __future__ import annotations

import pytest

from safelaunch.importer.findings import DIFFERENT, Findings, ScriptLaunch
from safelaunch.importer.record.repetition import mark_differing

OUTCOME = "kept as it is in this recording"
RUN = "torchrun --nproc_per_node 2"


def repeated(line: str, *ports: str, env: str = "", count: int = 1) -> Findings:
    """Return the findings of a line, in whose recordings `@` was each of two ports."""
    recordings = [
        Findings([
            ScriptLaunch(
                3,
                tuple(line.replace("@", port).split()),
                dict(item.split("=", 1) for item in env.replace("@", port).split()),
                "/work",
            )
        ] * times)
        for port, times in zip(ports, (1, count), strict=True)
    ]  # fmt: skip
    mark_differing(recordings[0], recordings[1], {})
    return recordings[0]


@pytest.mark.parametrize(
    ("line", "env", "expected"),
    [
        (f"{RUN} --master_port @ t.py", "", f"{RUN} --master_port {DIFFERENT} t.py"),
        (f"{RUN} --master-port=@ t.py", "", f"{RUN} --master-port={DIFFERENT} t.py"),
        (f"{RUN} --rdzv-endpoint h:@ t.py", "", f"{RUN} --rdzv-endpoint h:{DIFFERENT} t.py"),
        (f"{RUN} t.py", "MASTER_PORT=@", f"{RUN} t.py"),
    ],
)
def test_a_port_of_one_node_that_differs_is_marked(line: str, env: str, expected: str) -> None:
    (launch,) = (findings := repeated(line, "29501", "29671", env=env)).launches
    assert (launch.words, len(launch.different)) == (tuple(expected.split()), 1)
    assert not findings.notes


@pytest.mark.parametrize(
    ("line", "env", "note"),
    [
        (f"{RUN} t.py --seed @", "", "`--seed 29501`"),
        (f"{RUN} t.py --out=o/@/x", "", "`--out=o/29501/x`"),
        (f"{RUN} --master_port @ t.py --port @", "", "`--master_port 29501`"),
        (f"{RUN} --nnodes 2 --node_rank 0 --master_port @ t.py", "", "`--master_port 29501`"),
        ("python t.py", "NAME=@", "`NAME=29501`"),
        ("python t.py", "WANDB_API_KEY=@", "`WANDB_API_KEY`"),
    ],
)
def test_another_value_that_differs_is_kept_and_noted(line: str, env: str, note: str) -> None:
    findings = repeated(line, "29501", "29671", env=env)
    assert findings.launches[0].words == tuple(line.replace("@", "29501").split())
    assert (3, f"{note} differs at each start", OUTCOME) in findings.notes


def test_launches_that_differ_themselves_are_noted() -> None:
    findings = repeated("python t.py", "1", "2", count=2)
    assert [note.text for note in findings.notes] == ["what it starts differs at each start"]
