"""Which class a text or an exception belongs to."""

from __future__ import annotations

import time

import pytest
import yaml
from support import DATA

from safelaunch.runtime.signatures import advice, classes


def named(text: str, failed: bool = True) -> str | None:
    match = classes.classify(text, failed)
    return match.name if match else None


# -- the table -------------------------------------------------------------------------------------


def test_every_class_has_advice() -> None:
    assert set(classes.TABLE) == set(advice.ADVICE)


@pytest.mark.parametrize("name", ["user-code-exception", "module-not-found", "argument-error"])
def test_what_fails_the_same_way_again_is_not_retried(name: str) -> None:
    assert not classes.restarts(name)


@pytest.mark.parametrize("name", ["port-in-use", "nccl-timeout", "cuda-illegal-memory-access"])
def test_what_passes_is_retried(name: str) -> None:
    assert classes.restarts(name)


def test_an_unknown_class_is_not_retried() -> None:
    assert not classes.restarts("no-such-class")


# -- samples in other wordings, and what only looks alike ------------------------------------------


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("RuntimeError: CUDA error: out of memory", "cuda-oom"),
        ("torch.cuda.OutOfMemoryErrortorch.cuda.OutOfMemoryError: : CUDA out", "cuda-oom"),
        ("remote process exited or there was a network error, NCCL 2.18", "nccl-unhandled-error"),
        ("[gloo/transport/tcp/pair.cc:589] Read error [::1]:9: Connection reset by peer",
         "peer-lost"),
        ("OSError: [Errno 28] No space left on device: '/data/x'", "disk-full"),
        ("x: Error while creating shared memory segment /dev/shm/nccl-ab (size 9)", "nccl-shm"),
        ("ModuleNotFoundError: No module named 'src'", "module-not-found"),
        ("FlashAttention only supports Ampere GPUs or newer.", "flash-attn"),
        ("bash: line 1: torchrun: command not found", "command-not-found"),
        ("./run.sh: /bin/bash^M: bad interpreter: No such file or directory",
         "crlf-bad-interpreter"),
        ("Out of memory: Killed process 991 (python)", "host-oom"),
        ("slurmstepd: error: *** JOB 1 ON n CANCELLED AT 2024-01-01 DUE TO TIME LIMIT ***",
         "time-limit"),
        ("slurmstepd: error: *** JOB 1 ON n CANCELLED AT 2024-01-01T12:00:00 ***",
         "scheduler-cancelled"),
    ],
)  # fmt: skip
def test_a_line_has_its_class(line: str, name: str) -> None:
    assert named(line) == name


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("AttributeError: module 'utils' has no attribute 'load'", "user-code-exception"),
        ("ImportError: cannot import name 'f' from 'mine' (/me/mine.py)", "user-code-exception"),
        ("TypeError: '<' not supported between instances of 'dict' and 'dict'",
         "user-code-exception"),
        ("best loss: inf", None),
        ("grad_norm_loss_nan_check: off", None),
    ],
)  # fmt: skip
def test_a_near_miss_does_not_match(line: str, name: str | None) -> None:
    assert named(line) == name


def test_a_cause_comes_before_the_consequences_that_stand_above_it() -> None:
    text = "RuntimeError: Connection closed by peer\nValueError: bad batch\nstep 3\n"
    match = classes.classify(text)
    assert match is not None
    assert (match.line, match.number) == ("ValueError: bad batch", 2)


def test_the_launchers_own_exception_is_a_consequence() -> None:
    match = classes.classify("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ")
    assert match is not None
    assert match.role == "cascade"


def test_progress_after_a_warning_makes_it_harmless() -> None:
    text = "OSError: [Errno 98] Address already in use\nstep 10 loss 0.3\n"
    assert named(text, failed=False) is None
    assert named(text) == "port-in-use"


# -- exceptions ------------------------------------------------------------------------------------


TRACE = """Traceback (most recent call last):
  File "/home/me/w.py", line 2, in <module>
{code}
{last}"""
IPYTHON = """---------------------------------------------------------------------------
KeyError                                  Traceback (most recent call last)
Cell In[1], line 2
      1 d = {}
----> 2 port = d['port']  # else: Address already in use

KeyError: 'port'"""


@pytest.mark.parametrize(
    "code",
    [
        "    port = d['port']  # else: Address already in use",
        "    x = p['free']  # CUDA out of memory\n        ~^^^^^^^^",
        "    raise A if bad else B('Connection closed by peer')",
        "    train(\n        'NCCL error: unhandled system error',\n    )",  # as of Python 3.13
        "    assert n, 'No space left on device?'",
        "    train()\n  [...]\n    x = 1  # Address already in use",
        "    train(\n\n        'CUDA out of memory')",
    ],
)
def test_words_in_source_lines_are_no_cause(code: str) -> None:
    trace = TRACE.format(code=code, last="KeyError: 'port'")
    match = classes.classify_exception("KeyError", "'port'", trace)
    assert (match.name, match.role) == (classes.USER, "root")
    match_in_log = classes.classify(f"step 1\n{trace}\n")
    assert match_in_log is not None
    assert (match_in_log.name, match_in_log.line) == (classes.USER, "KeyError: 'port'")


SOURCE = (
    "    d[1]  # {}\n",
    "    raise KeyError('{}')\n    ~~~~~^^^^\n",
    "    f(\n        '{}',\n\n        '{}')\n",
    "    f(\n  [...]\n        '{}')\n",
    "    {}\n    {}\n",
    "    f()  # {}\n  [Previous line repeated 9 more times]\n",
)


def test_no_known_text_in_a_source_line_is_a_cause() -> None:
    """Each text of the corpus in one of the forms in which a traceback shows source."""
    path = DATA / "failures" / "known-texts.yaml"
    texts = yaml.safe_load(path.read_text(encoding="utf-8")).values()
    lines = [line for text in texts for line in str(text).split("\n")]
    for index, line in enumerate(lines):
        code = SOURCE[index % len(SOURCE)].replace("{}", line)
        trace = TRACE.format(code="@", last="KeyError: 1").replace("@\n", code)
        match = classes.classify_exception("KeyError", "1", trace)
        assert (match.name, match.role) == (classes.USER, "root"), (line, code)


def test_words_in_source_lines_of_a_group_are_no_cause() -> None:
    trace = (
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/home/me/w.py", line 3, in <module>\n'
        "  |     raise g  # CUDA out of memory\n  | ExceptionGroup: two (1 sub-exception)\n"
        "  +-+---------------- 1 ----------------\n    | Traceback (most recent call last):\n"
        '    |   File "/home/me/w.py", line 2, in f\n    |     d[1]  # Address already in use\n'
        "    | {last}\n    +------------------------------------\n"
    )
    match = classes.classify_exception("ExceptionGroup", "two", trace.format(last="KeyError: 1"))
    assert match.name == classes.USER
    in_group = trace.format(last="torch.OutOfMemoryError: CUDA out of memory.")
    assert classes.classify_exception("ExceptionGroup", "two", in_group).name == "cuda-oom"


def test_words_in_a_notebooks_source_line_are_no_cause() -> None:
    match = classes.classify(IPYTHON)
    assert match is not None
    assert match.name == classes.USER


def test_a_plain_exception_is_the_users_own() -> None:
    match = classes.classify_exception("ValueError", "bad batch 17", "")
    assert (match.name, match.role) == ("user-code-exception", "root")


def test_an_unknown_exception_out_of_communication_may_be_a_consequence() -> None:
    trace = (
        'Traceback (most recent call last):\n  File "/x/torch/distributed/c10d.py", line 3, in a\n'
    )
    assert classes.classify_exception("RuntimeError", "odd", trace).role == "unknown"


@pytest.mark.parametrize(
    ("folder", "role"),
    [("/home/ray/proj", "root"), ("/x/site-packages/ray", "unknown")],
)
def test_only_a_package_communicates_and_not_a_users_folder(folder: str, role: str) -> None:
    trace = TRACE.replace("/home/me", folder).format(code="    d['x']", last="KeyError: 'x'")
    assert classes.classify_exception("KeyError", "'x'", trace).role == role


def test_the_cause_of_a_chained_exception_counts() -> None:
    trace = (
        "Traceback (most recent call last):\ntorch.OutOfMemoryError: CUDA out of memory.\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\nRuntimeError: Connection closed by peer\n"
    )
    match = classes.classify_exception("RuntimeError", "Connection closed by peer", trace)
    assert match.name == "cuda-oom"


# -- cost ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["x" * 300_000, "\n" * 100_000, "ssh: " * 60_000, "loss nan " * 30_000]
)
def test_any_text_is_looked_through_fast(text: str) -> None:
    classes.classify("")  # patterns are compiled once
    started = time.process_time()
    classes.classify(text)
    assert time.process_time() - started < 2
