"""The verdict on whole logs: real programs, and what stands around the line of the cause."""

from __future__ import annotations

import io

import pytest
from support.inputs.whole_logs import WholeLog, whole_logs

from safelaunch.diagnose.logs.sources import LogReader, LogSource
from safelaunch.diagnose.root_cause import Diagnosis, diagnose

STOPPED = "signal-interrupt"
HEAD = '  File "/home/me/train.py", line 9, in <module>\n    main()\n'
TRACE = f"Traceback (most recent call last):\n{HEAD}{{}}\n"
OOM = TRACE.format("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.84 GiB")
KEY = TRACE.format("KeyError: 'labels'")
CTRL_C = TRACE.format("KeyboardInterrupt")
LONG = 40  # steps: more than the processes print that wait for a dead one
TIMEOUT = (
    "[rank1]:[E1122 10:00:00.1 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=71, OpType=ALLREDUCE, Timeout(ms)=600000)\n"
)
LAUNCH = "W1122 10:00:00.1 9 torch/distributed/run.py:874] Setting OMP_NUM_THREADS environment"
LAUNCH += " variable for each process to be 1 in default\n"


def steps(first: int, last: int, prefix: str = "") -> str:
    return "".join(f"{prefix}step {n}/99 loss {2 / (n + 1):.3f}\n" for n in range(first, last))


def prefixed(prefix: str, text: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


def block(rank: int, traceback: str = "To enable traceback see: https://pytorch.org") -> str:
    return (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        f"{'=' * 60}\ntrain.py FAILED\n{'-' * 60}\nFailures:\n  <NO_OTHER_FAILURES>\n{'-' * 60}\n"
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-22_10:00:09\n"
        f"  host      : gpu01\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : 1 (pid: 4021)\n  error_file: <N/A>\n  traceback : {traceback}\n{'=' * 60}\n"
    )


def read(text: str) -> Diagnosis:
    return diagnose([LogReader(LogSource("-"), io.BytesIO(text.encode()))])


def verdict(diagnosis: Diagnosis) -> str:
    if not diagnosis.failed:
        return "healthy"
    return "stopped" if diagnosis.causes[0].id == STOPPED else "failed"


def cause(text: str) -> str:
    diagnosis = read(text)
    return diagnosis.causes[0].line if diagnosis.failed else ""


# -- recorded logs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("log", whole_logs(), ids=lambda log: log.id)
def test_a_whole_log_is_read_as_it_was_labelled(log: WholeLog) -> None:
    diagnosis = read(log.path.read_bytes().decode())
    label = log.label
    assert verdict(diagnosis) == label.verdict
    if label.verdict != "healthy":
        first = diagnosis.causes[0]
        assert label.line in first.line
        assert (label.name or first.name, label.rank) == (
            first.name,
            None if label.rank is None else first.rank,
        )
    assert any("in this log failed" in note for note in diagnosis.notes) == bool(label.earlier)


# -- what stands behind a crash --------------------------------------------------------------------

GOODBYES = (
    "Done", "DONE!", "Finished at Sun Nov 22 10:00:00 UTC 2026", "=== Finished ===", "All done!",
    "exit code 0", "EXIT_CODE=0", "Training completed successfully", "SUCCESS", "PASS",
    "INFO:     Application shutdown complete.", "best loss: 0.5123", "final loss = 0.23",
    "Best val_loss: 0.51 at epoch 3", "COMET INFO: loss [10] : (0.5, 1.2)",
    "wandb: Run summary:\nwandb:   train/loss 0.83\nwandb:   train/global_step 100",
    "wandb: train/loss 0.5 step 100/200", "Successfully installed torch-2.5.1", "loss: 0.52",
    'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK', "Uploading artifacts 100%",
    "{'train_runtime': 12.3, 'train_loss': 0.4, 'epoch': 1.0}", "=== run 2 ===",
    "bash: foo: command not found", "./run.sh: line 12: foo: command not found",
    "cp: cannot stat 'out/model.pt': No such file or directory",
)  # fmt: skip


@pytest.mark.parametrize("goodbye", GOODBYES)
def test_words_behind_an_uncaught_exception_do_not_undo_it(goodbye: str) -> None:
    assert cause(f"{steps(0, 3)}{KEY}{goodbye}\n") == "KeyError: 'labels'"


@pytest.mark.parametrize("goodbye", GOODBYES)
def test_words_behind_the_block_of_a_launcher_do_not_undo_it(goodbye: str) -> None:
    assert "exitcode  : 1" in cause(f"{steps(0, 3)}{block(3)}{goodbye}\n")


def test_a_bar_that_an_exception_closes_is_no_step() -> None:
    bar = " {0}%|##        | {0}/100 [00:1{1}<01:30,  1.0it/s]\n"
    assert cause(bar.format(20, 0) + KEY + bar.format(21, 1)) == "KeyError: 'labels'"


@pytest.mark.parametrize(
    "later",
    [
        steps(3, 5),
        "{'loss': 0.5, 'grad_norm': 1.0, 'learning_rate': 1e-5, 'epoch': 0.1}\n",
        "step:125/6000 val_loss:10.6 train_time:12ms\n",
        "Epoch 2: train_loss=0.91 val_loss=0.83\n",
        "loss: 0.52\nloss: 0.51\nloss: 0.49\n",
        "100%|##########| 100/100 [05:03<00:00,  3.0it/s]\n",
        'INFO:     127.0.0.1:1 - "POST /score HTTP/1.1" 200 OK\n',
        " iteration      5/    100 | elapsed time per iteration (ms): 3.0 | lm loss: 1.0E+00 |\n",
    ],
)
def test_a_further_step_of_the_process_undoes_an_exception(later: str) -> None:
    assert not read(steps(0, 3) + KEY + later).failed


def test_few_steps_of_other_processes_do_not_undo_an_exception() -> None:
    died = prefixed("(Worker pid=3) ", KEY)
    assert "KeyError" in cause(steps(0, 3, "(Task pid=9) ") + died + steps(3, 6, "(Task pid=9) "))


def test_many_steps_of_other_processes_show_that_the_job_went_on() -> None:
    handled = prefixed("(Worker pid=3) ", KEY)
    assert not read(handled + steps(0, LONG, "(Task pid=9) ")).failed


def test_an_exception_that_python_ignores_is_no_failure() -> None:
    text = f"Exception ignored in: <function Server.__del__ at 0x7f2a>\n{KEY}"
    assert not read(f"{steps(0, 3)}{text}").failed


def test_an_error_of_logging_itself_is_no_failure() -> None:
    text = TRACE.format("TypeError: not all arguments converted during string formatting")
    stack = f"Call stack:\n{HEAD}Message: 'x'\nArguments: (1,)\n"
    assert not read(f"{steps(0, 3)}--- Logging error ---\n{text}{stack}").failed


def test_source_that_a_program_prints_is_no_evidence() -> None:
    source = (
        "import torch\n\ndef check(loss):\n    # CUDA out of memory is raised elsewhere\n"
        "    if loss != loss:\n        raise RuntimeError('CUDA error: out of memory')\n"
        "    return loss\n\nclass Model:\n    pass\n"
    )
    assert not read(f"{source}{'=' * 80}\n{steps(0, 3)}").failed


# -- warnings --------------------------------------------------------------------------------------

WARNINGS = (
    "WARNING [tokenizer.py:284] No tokenizer found in /p, using base model tokenizer instead.",
    "Could not cache the file. Will ignore error and continue. [Errno 30] Read-only file system",
    "flash_attn is not installed (No module named 'flash_attn'), falling back to sdpa",
)
SIGNS = (
    "(TaskRunner pid=9) step:300 - actor/entropy:0.18 - actor/pg_loss:0.1",
    "Training Progress: 100%|####| 300/300 [4:15:33<00:00, 51.11s/it]",
    "step:10/20 val_loss:3.2", "{'eval_loss': 0.4, 'epoch': 1.0}", "PASS", "EXIT_CODE=0", "Done",
    "Successfully built vllm", "12 passed, 3 warnings in 3.2s", "***** train metrics *****",
    'INFO:     127.0.0.1:5442 - "POST /v1/completions HTTP/1.1" 200 OK',
    "[2026-11-22 10:00:00] The server is fired up and ready to roll!",
    "INFO:     Application startup complete.",
)  # fmt: skip


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("warning", WARNINGS)
def test_a_sign_of_any_process_undoes_a_warning(warning: str, sign: str) -> None:
    assert not read(f"(WorkerDict pid=64430) {warning}\n{sign}\n").failed


def test_what_a_program_warns_of_as_it_leaves_is_no_failure() -> None:
    left = "[W1122 10:00:00.1 TCPStore.cpp:125] [c10d] recvValue failed: Connection reset by peer\n"
    assert not read(f"{steps(0, 3)}Training complete\n{left}").failed


# -- several runs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "second"),
    [
        ("=== run 2 ===\n", ""),
        ("+ python train.py --lr 2\n", ""),
        ("wandb: Agent Starting Run: b2 with config:\n", ""),
        ("", steps(0, 3)),
    ],
)
def test_the_cause_is_that_of_the_last_run(start: str, second: str) -> None:
    diagnosis = read(steps(0, 9) + OOM + start + second + KEY)
    assert diagnosis.causes[0].line == "KeyError: 'labels'"
    assert "1 earlier run in this log failed, in line 13" in diagnosis.notes[0]


def test_a_launcher_that_is_started_again_begins_another_run() -> None:
    diagnosis = read(LAUNCH + steps(0, 3) + KEY + block(0) + LAUNCH + steps(0, 3))
    assert not diagnosis.failed
    assert "earlier run" in diagnosis.notes[0]


def test_the_line_of_a_next_run_that_did_not_start_undoes_nothing() -> None:
    assert cause(f"{steps(0, 3)}{KEY}=== run 2 ===\n=== sweep finished: 3 runs ===\n")


# -- who, and after whom ---------------------------------------------------------------------------


def test_the_rank_stands_in_the_block_of_the_launcher() -> None:
    assert read(KEY + block(3)).causes[0].rank == 3


def test_a_traceback_in_the_block_alone_has_the_rank_of_its_entry() -> None:
    quoted = f"Traceback (most recent call last):\n{HEAD}  ValueError: bad record\n"
    first = read(block(5, quoted)).causes[0]
    assert (first.line, first.rank) == ("ValueError: bad record", 5)


def test_what_fails_behind_the_block_of_a_launcher_is_not_its_cause() -> None:
    upload = TRACE.format("ConnectionError: upload failed")
    assert cause(f"{KEY}{block(3)}{upload}") == "KeyError: 'labels'"


def test_ctrl_c_is_a_stop_and_no_error_of_the_program() -> None:
    assert verdict(read(f"{steps(0, 3)}^C{CTRL_C}Done\n")) == "stopped"


def test_an_exception_above_ctrl_c_is_the_cause() -> None:
    assert cause(KEY + CTRL_C) == "KeyError: 'labels'"


def test_what_other_ranks_report_behind_ctrl_c_is_a_consequence() -> None:
    assert verdict(read(prefixed("[rank0]: ", CTRL_C) + TIMEOUT)) == "stopped"


def test_a_timeout_above_ctrl_c_is_the_cause() -> None:
    assert "Watchdog" in cause(TIMEOUT + CTRL_C)
