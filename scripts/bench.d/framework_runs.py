"""Whether the installed frameworks refuse and accept what the arithmetic rules say of them.

SAFELAUNCH_BENCH_PROGRAMS names the folder of programs, with `python`, of an environment in which
the frameworks are installed. The samples are those of the tests; framework_probe.py asks the
classes.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from complaints import PROGRAMS
from framework_probe import ACCEPTED, REFUSED, Answer, Case
from kills import tests
from rows import Row, home
from swift_probe import can_ask

from safelaunch.analysis.arithmetic import FAIL, find_problems
from safelaunch.analysis.arithmetic.rules import rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from safelaunch.analysis.arithmetic.rules import Rule

_PROBE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "framework_probe.py")
_WITHOUT_GPUS = "does not import without GPUs or a heavy set-up"
_NAMES_ONLY = {
    "trl-colocated-tensor": "vLLM makes the check",
    "accelerate-parallelism": "accelerate refuses all sizes on CPUs",
    "accelerate-megatron": "Megatron-LM makes the check",
}
_WAYS = {  # of a rule, or else of the project that it was checked against
    "trl": "configuration",
    "transformers": "configuration",
    "deepspeed": "deepspeed",
    "ms-swift": "swift",
    "trainer-fsdp-deepspeed": "trainer",
    "trainer-deepspeed-bf16": "trainer",
    "trainer-deepspeed-fp16": "trainer",
    "trainer-deepspeed-micro": "trainer",
    "trainer-deepspeed-steps": "trainer",
    "trainer-deepspeed-batch": "trainer",
    "accelerate-deepspeed-steps": "trainer",
    "accelerate-fsdp-deepspeed": "launch",
}
_DEEPSPEED_FILE = {"train_micro_batch_size_per_gpu": "auto"}  # where a sample only names one
_LIMIT = 900  # seconds


class _Question(NamedTuple):
    """A sample of a rule, and what a framework that is as the rule says does with it."""

    rule: str
    expected: str
    case: Case


def framework_runs() -> Iterator[Row]:
    """Yield for each rule whether its framework agrees about the rule's samples."""
    folder = os.environ.get(PROGRAMS)
    if not folder:
        return
    samples: Any = tests("unit.analysis.arithmetic.test_rules")
    questions = [question for rule in rules() for question in _questions(rule, samples)]
    python = os.path.join(folder, "python")
    versions = _versions(python)
    answers: dict[str, list[tuple[_Question, Answer]]] = defaultdict(list)
    for question, answer in zip(questions, _ask(python, questions), strict=True):
        answers[question.rule].append((question, answer))
    count = 0
    for rule in rules():
        row = _row(rule, answers.get(rule.id, []), versions)
        count += row.ok is not None
        yield row
    shown = ", ".join(f"{name} {version}" for name, version in versions.items())
    yield Row("rules run on installed frameworks", f"{count} of {len(rules())}", shown, ok=True)


def _row(rule: Rule, answers: list[tuple[_Question, Answer]], versions: Mapping[str, str]) -> Row:
    project = rule.checked.split()[0]
    what = f"{rule.id} ({rule.severity}) on {project} {versions.get(project, '')}".rstrip()
    bound = "its samples refused and accepted"
    if not _way(rule):
        why = _NAMES_ONLY.get(rule.id) or _NAMES_ONLY.get(project) or _WITHOUT_GPUS
        return Row(what, f"names only: {why}", bound, None)
    if project not in versions:
        return Row(what, f"names only: {project} is not installed", bound, None)
    if {question.expected for question, _ in answers} != {ACCEPTED, REFUSED}:
        return Row(what, "names only: no pair of samples that a class can judge", bound, None)
    wrong = [
        f"`{_line(question.case)}`: {answer.outcome}, not {question.expected}: {answer.text[:200]}"
        for question, answer in answers
        if answer.outcome != question.expected
        # a rule that warns may be about what a framework lets pass
        and not (
            rule.severity != FAIL and (question.expected, answer.outcome) == (REFUSED, ACCEPTED)
        )
    ]
    if wrong:
        return Row(what, " ".join("; ".join(wrong).split()), bound, ok=False)
    outcomes = [answer.outcome for question, answer in answers if question.expected == REFUSED]
    for question, answer in answers:
        print(
            f"{rule.id}: `{_line(question.case)}`: {answer.outcome} {answer.text[:300]}",
            file=sys.stderr,
        )
    refused = f"{outcomes.count(REFUSED)} refused"
    if ACCEPTED in outcomes:
        refused = "not refused, as a rule that warns allows"
    return Row(what, f"run: {refused}, {len(answers) - len(outcomes)} accepted", bound, ok=True)


def _line(case: Case) -> str:
    return f"{case.launcher_args} {case.args}".strip()


def _way(rule: Rule) -> str | None:
    if rule.id in _NAMES_ONLY:
        return None
    return _WAYS.get(rule.id) or _WAYS.get(rule.checked.split()[0])


def _questions(rule: Rule, samples: Any) -> Iterator[_Question]:
    """Yield the samples of a rule that a class of its framework can judge."""
    way = _way(rule)
    if way is None:
        return
    for kind, expected in (("fires", REFUSED), ("silent", ACCEPTED)):
        for sample in samples.SAMPLES[rule.id][kind]:
            # silent about another version, or one that another rule is about
            if kind == "silent" and (
                "versions" in sample or [*find_problems(samples.subject(sample))]
            ):
                continue
            case = _case(way, rule, sample)
            if case:
                yield _Question(rule.id, expected, case)


def _case(way: str, rule: Rule, sample: Mapping[str, Any]) -> Case | None:
    """Return a sample as a case, or None if its program is not one of the framework's."""
    args, launcher_args = sample.get("args", ""), sample.get("launcher_args", "")
    needs_class = way in ("configuration", "trainer")
    configuration = _configuration(sample) if needs_class else ""
    missing = (name for name in ("world", "gpus") if name not in sample)
    if configuration is None or any(re.search(rf"\b{name}\b", repr(rule)) for name in missing):
        return None
    if way == "swift" and not can_ask(args):
        return None
    configs = dict(sample.get("configs", {}))
    files = re.findall(r"\S+\.(?:yaml|json)\b", f"{launcher_args} {args}")
    if way == "trainer" and "ds.json" in f"{files} {json.dumps(configs)}":
        configs.setdefault("ds.json", _DEEPSPEED_FILE)
    if not configs.keys() >= set(files) or (way == "deepspeed" and not configs):
        return None
    # only the Trainer fills in `auto`
    if "auto" in shlex.split(args) or (way == "deepspeed" and "auto" in json.dumps(configs)):
        return None
    world, gpus = sample.get("world", 1), sample.get("gpus")
    return Case(way, configuration, args, launcher_args, configs, world, gpus)


def _configuration(sample: Mapping[str, Any]) -> str | None:
    """Return module and class of what a program builds, as far as the sample says it."""
    program = sample["program"]
    if trl := re.fullmatch(r"trl(?:\.scripts\.| )(sft|dpo|grpo|rloo)", program):
        return f"trl.{trl[1].upper()}Config"
    if program == "llamafactory train" or sample.get("parsed") == "TrainingArguments":
        return "transformers.TrainingArguments"
    return f"trl.{sample['parsed']}" if sample.get("parsed") else None


def _versions(python: str) -> dict[str, str]:
    """Return the versions of the frameworks that an interpreter has."""
    names = sorted({rule.checked.split()[0] for rule in rules() if _way(rule)})
    code = (
        "import sys, json, importlib.metadata as m\n"
        "d = {x.metadata['Name']: x.version for x in m.distributions()}\n"
        "print(json.dumps({n: d[n] for n in sys.argv[1:] if n in d}))"
    )
    done = subprocess.run(
        [python, "-c", code, *names], capture_output=True, text=True, check=True, timeout=_LIMIT
    )
    versions: dict[str, str] = json.loads(done.stdout)
    return versions


def _ask(python: str, questions: list[_Question]) -> list[Answer]:
    """Return the answers of the frameworks to all questions."""
    with home() as (folder, env):
        source, target = os.path.join(folder, "cases"), os.path.join(folder, "answers")
        with open(source, "w", encoding="utf-8") as file:
            json.dump([question.case for question in questions], file)
        subprocess.run(
            [python, "-W", "ignore", _PROBE, source, target],
            cwd=folder,
            env={**env, "HOME": folder, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            check=True,
            timeout=_LIMIT,
        )
        with open(target, encoding="utf-8") as file:
            return [Answer(*values) for values in json.load(file)]
