from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import REPOSITORY
from support.project import PYTHON, Project

from safelaunch.config.resolve import Flags
from safelaunch.model import Hang, Success
from safelaunch.runtime.signatures import classes

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.model import Recovery, Supervision

DOC = REPOSITORY / "docs" / "job-file.md"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def watched(project: Project, text: str, flags: Flags | None = None) -> Supervision:
    return project.plan(PYTHON + text, flags).supervision


def recovery(project: Project, text: str) -> Recovery:
    result = watched(project, f"recovery: {text}\n").recovery
    assert result is not None
    return result


# -- what is read ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("2h", 7200),
        ("1d12h", 129600),
        ("1h1m1s", 3661),
        ("1.5h", 5400),
        ("0.25s", 0.25),
        ("'90s'", 90),
    ],
)
def test_a_duration_is_read_with_its_unit(written: str, seconds: float, project: Project) -> None:
    assert watched(project, f"max_duration: {written}\n").max_duration == seconds


@pytest.mark.parametrize(
    ("written", "size"), [("64MiB", 64 << 20), ("4GiB", 4 << 30), ("1.5GiB", 3 << 29)]
)
def test_a_size_is_read_in_binary_units(written: str, size: int, project: Project) -> None:
    assert watched(project, f"log_cap: {written}\n").log_cap == size


def test_a_job_without_recovery_is_never_restarted(project: Project) -> None:
    assert watched(project, "").recovery is None


def test_an_empty_recovery_takes_the_defaults_that_the_docs_name(project: Project) -> None:
    result = recovery(project, "{}")
    shown = f"max_restarts: {result.max_restarts}\n  backoff: {result.backoff}s"
    assert shown in DOC.read_text("utf-8")


def test_a_partial_hang_keeps_the_other_defaults(project: Project) -> None:
    assert watched(project, "hang: {action: stop}\n").hang == Hang(action="stop")


def test_hang_off_is_no_watchdog(project: Project) -> None:
    assert watched(project, "hang: off\n").hang is None


def test_hangs_are_reported_unless_the_job_says_otherwise(project: Project) -> None:
    assert watched(project, "").hang == Hang(action="report")


def test_a_long_first_pause_raises_the_longest_pause(project: Project) -> None:
    assert recovery(project, "{backoff: 1h}").backoff_max == 3600


def test_classes_say_restart_or_stop(project: Project) -> None:
    result = recovery(project, "{classes: {port-in-use: stop, cuda-oom: restart, killed: null}}")
    assert result.classes == {"port-in-use": "stop", "cuda-oom": "restart"}


def test_a_flag_sets_a_part_of_a_block(project: Project) -> None:
    flags = Flags(sets=("recovery.max_restarts=7", "recovery.classes.hang=stop", "hang.factor=3"))
    result = watched(project, "recovery: {backoff: 1s}\n", flags)
    assert result.recovery is not None
    assert (result.recovery.max_restarts, result.recovery.classes, result.recovery.backoff) == (
        7,
        {"hang": "stop"},
        1,
    )


def test_an_overlay_changes_a_part_of_a_block(project: Project) -> None:
    project.write("recovery: {max_restarts: 5, backoff: 1s}\n", "base.yaml")
    result = watched(project, "extends: base.yaml\nrecovery: {backoff: 2s}\n").recovery
    assert result is not None
    assert (result.max_restarts, result.backoff) == (5, 2)


def test_null_lifts_an_inherited_recovery(project: Project) -> None:
    project.write("recovery: {max_restarts: 5}\n", "base.yaml")
    assert watched(project, "extends: base.yaml\nrecovery: null\n").recovery is None


def test_artifacts_above_the_job_but_inside_the_project_are_fine(project: Project) -> None:
    project.write("", "jobs/train.py")
    text = PYTHON + "success: {artifacts: ../out/*.pt}\n"
    plan = project.plan(text, name="jobs/job.yaml")
    assert plan.supervision.success == Success(artifacts=("../out/*.pt",))


def test_the_docs_name_each_failure_class_and_what_is_done_about_it() -> None:
    text = DOC.read_text("utf-8")
    restarted, _, stopped = text.partition("and these are not")
    wrong = [
        name
        for name, kind in classes.TABLE.items()
        if f"`{name}`" not in (restarted if kind.restart else stopped)
    ]
    assert wrong == []


# -- what is refused -------------------------------------------------------------------------------

BAD = {
    "unknown class": (
        "recovery: {classes: {cuda-om: stop}}\n",
        "job.yaml:3:22",
        "unknown failure class `cuda-om`",
        "did you mean `cuda-oom`?",
    ),
    "unknown action of a class": (
        "recovery: {classes: {cuda-oom: retry}}\n",
        "job.yaml:3:32",
        "expected one of restart, stop, got `retry`",
        "",
    ),
    "classes as a list": (
        "recovery: {classes: [cuda-oom]}\n",
        "job.yaml:3:21",
        "expected a mapping of failure classes",
        "",
    ),
    "unknown key of recovery": (
        "recovery: {max_restart: 3}\n",
        "job.yaml:3:12",
        "unknown key `max_restart`",
        "did you mean `max_restarts`?",
    ),
    "recovery as a word": (
        "recovery: true\n",
        "job.yaml:3:11",
        "expected a mapping such as {max_restarts: 3}, got `true`",
        "",
    ),
    "negative restarts": (
        "recovery: {max_restarts: -1}\n",
        "job.yaml:3:26",
        "expected a whole number of at least 0, got `-1`",
        "",
    ),
    "a pause longer than the longest": (
        "recovery: {backoff: 1h, backoff_max: 1m}\n",
        "job.yaml:3:38",
        "`backoff_max` is shorter than `backoff`",
        "",
    ),
    "invalid pattern": (
        "progress: 'step (?P<step>[0-9]+'\n",
        "job.yaml:3:11",
        "is no regular expression: missing ), unterminated subpattern at position 5",
        "a literal bracket",
    ),
    "invalid pattern in a list": (
        "progress: ['(?P<step>x)', '*']\n",
        "job.yaml:3:27",
        "`*` is no regular expression: nothing to repeat at position 0",
        "",
    ),
    "invalid pattern of recovery": (
        "recovery: {progress: '['}\n",
        "job.yaml:3:22",
        "`[` is no regular expression: unterminated character set at position 0",
        "",
    ),
    "a pattern that is too big for the engine": (
        "progress: '(?P<step>x){99999999999}'\n",
        "job.yaml:3:11",
        "is no regular expression",
        "",
    ),
    "unknown group": (
        "progress: '(?P<stp>[0-9]+)'\n",
        "job.yaml:3:11",
        "unknown group `stp`",
        "known: step, total, loss, eta",
    ),
    "no group": ("progress: 'step [0-9]+'\n", "job.yaml:3:11", "no named group", "(?P<step>"),
    "empty pattern": ("progress: ''\n", "job.yaml:3:11", "an empty pattern", ""),
    "absolute artifact": (
        "success: {artifacts: [a, /data/*.pt]}\n",
        "job.yaml:3:26",
        "`/data/*.pt` is absolute",
        "relative to the working directory",
    ),
    "artifact outside the project": (
        "success: {artifacts: out/../../*.pt}\n",
        "job.yaml:3:22",
        "`out/../../*.pt` leads out of the project",
        "the project is ",
    ),
    "artifact that may lead outside": (
        "success: {artifacts: '*/../../x'}\n",
        "job.yaml:3:22",
        "`..` after a wildcard",
        "",
    ),
    "the folder above as an artifact": (
        "success: {artifacts: ..}\n",
        "job.yaml:3:22",
        "`..` leads out of the project",
        "",
    ),
    "artifact in a home": (
        "success: {artifacts: ~/x}\n",
        "job.yaml:3:22",
        "`~` is never expanded",
        "",
    ),
    "artifact on a drive": (
        "success: {artifacts: 'C:\\x'}\n",
        "job.yaml:3:22",
        "is a Windows path",
        "",
    ),
    "log in a home": ("logs: [~/areal/*.log]\n", "job.yaml:3:8", "`~` is never expanded", ""),
    "bare duration": (
        "max_duration: 90\n",
        "job.yaml:3:15",
        "expected a duration such as 90s, 10m, 2h or 1d12h, got `90`",
        "with its unit: `90s`, `90m` or `90h`",
    ),
    "negative duration": (
        "max_duration: -5m\n",
        "job.yaml:3:15",
        "expected a duration such as 90s, 10m, 2h or 1d12h, got `-5m`",
        "",
    ),
    "no duration": ("max_duration: 0s\n", "job.yaml:3:15", "`0s` is no time at all", ""),
    "duration in the wrong order": ("max_duration: 5m2h\n", "job.yaml:3:15", "got `5m2h`", ""),
    "empty duration": ("max_duration: ''\n", "job.yaml:3:15", "expected a duration", ""),
    "duration that is a slip": ("max_duration: 400d\n", "job.yaml:3:15", "more than a year", ""),
    "negative pause": ("recovery: {backoff: -30s}\n", "job.yaml:3:21", "got `-30s`", ""),
    "negative floor": ("hang: {floor: -1s}\n", "job.yaml:3:15", "got `-1s`", ""),
    "small log": (
        "log_cap: 10MiB\n",
        "job.yaml:3:10",
        "expected a size of at least 64MiB, such as 512MiB or 4GiB, got `10MiB`",
        "",
    ),
    "decimal unit": ("log_cap: 4GB\n", "job.yaml:3:10", "got `4GB`", "`4GiB`"),
    "size that is a slip": ("log_cap: 9999TiB\n", "job.yaml:3:10", "more than 1024TiB", ""),
    "hang as a boolean": ("hang: false\n", "job.yaml:3:7", "expected `off` or a", "hang: off"),
    "hang as an action": ("hang: stop\n", "job.yaml:3:7", "got `stop`", "hang: {action: stop}"),
    "unknown action of a hang": (
        "hang: {action: kill}\n",
        "job.yaml:3:16",
        "expected one of report, restart, stop, got `kill`",
        "",
    ),
    "restart on a hang without recovery": (
        "hang: {action: restart}\n",
        "job.yaml:3:16",
        "`action: restart` without `recovery`",
        "recovery: {}",
    ),
    "capture in words": ("capture: yes\n", "job.yaml:3:10", "expected true or false", ""),
    "steps as text": ("success: {min_steps: many}\n", "job.yaml:3:22", "got `many`", ""),
    "ladder without a profile": (
        "recovery: {ladder: true}\n",
        "job.yaml:3:20",
        "`ladder: true` needs a profile with a ladder; the job has no profile",
        "",
    ),
    "ladder of a profile without one": (
        "profile: cpu\nrecovery: {ladder: true}\n",
        "job.yaml:4:20",
        "profile `cpu` has none",
        "",
    ),
    "resume_args of another form": (
        "args: {a: 1}\nrecovery: {resume_args: [--x]}\n",
        "job.yaml:4:25",
        "`resume_args` are a list, `args` a mapping",
        "same form",
    ),
    "a secret in resume_args": (
        "recovery: {resume_args: {api_key: abc}}\n",
        "job.yaml:3:35",
        "a secret does not belong in a file",
        "env_from",
    ),
    "unknown key in smoke": (
        "smoke: {proceses: 1}\n",
        "job.yaml:3:9",
        "unknown key `proceses`",
        "did you mean `processes`?",
    ),
    "wrong value in smoke": (
        "smoke: {max_duration: 5}\n",
        "job.yaml:3:23",
        "expected a duration",
        "`5s`",
    ),
    "artifact outside the project in smoke": (
        "smoke: {success: {artifacts: ../../x}}\n",
        "job.yaml:3:30",
        "leads out of the project",
        "",
    ),
    "smoke in smoke": ("smoke: {smoke: {}}\n", "job.yaml:3:9", "`smoke` inside `smoke`", ""),
    "extends in smoke": (
        "smoke: {extends: base.yaml}\n",
        "job.yaml:3:9",
        "`extends` inside `smoke`",
        "one level up",
    ),
    "smoke as a word": ("smoke: true\n", "job.yaml:3:8", "expected a mapping of job keys", ""),
}


@pytest.mark.parametrize(("text", "where", "message", "hint"), BAD.values(), ids=BAD)
def test_bad_supervision_is_refused_with_its_place(
    text: str, where: str, message: str, hint: str, project: Project
) -> None:
    error = project.refused(PYTHON + text)
    assert (error.where, message in error.message, hint in error.hint) == (where, True, True), error


def test_a_flag_for_an_unknown_part_names_the_nearest(project: Project) -> None:
    error = project.refused(PYTHON, Flags(sets=("recovery.max_restart=1",)))
    assert (error.message, error.hint) == (
        "unknown key `max_restart` of `recovery`",
        "did you mean `max_restarts`?",
    )
