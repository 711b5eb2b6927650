"""Which line of a log is the cause: over ranks, files, chains, alarms that were none."""

from __future__ import annotations

import io
import random

import pytest
from support.inputs import failure_logs

from safelaunch.diagnose.logs.sources import LogReader, LogSource
from safelaunch.diagnose.root_cause import HIGH, LOW, Diagnosis, Finding, diagnose

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
LOST = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer"
)
TIMEOUT = (
    "[rank{0}]:[E1 10:00:09.1 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=71, OpType=ALLREDUCE, NumelIn=1, Timeout(ms)=600000)"
)
BAR = " 45%|####5     | {}/1000 [01:02<01:15,  7.2it/s]"
TRACE = """Traceback (most recent call last):
  File "/home/me/train.py", line 88, in <module>
    main()
  File "/home/me/train.py", line 17, in step
    loss = model(batch)
  File "/opt/env/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1751, in _call
    return self._impl(*args)
{}"""


def diagnose_texts(*logs: str, **names: str) -> Diagnosis:
    sources = [(f"rank-{index}.log", text) for index, text in enumerate(logs)]
    sources += [(name.replace("_", "-") + ".log", text) for name, text in names.items()]
    readers = []
    for path, text in sources:
        rank = int(path[5:-4]) if path.startswith("rank-") and len(logs) > 1 else None
        readers.append(LogReader(LogSource(path, rank), io.BytesIO(text.encode())))
    return diagnose(readers)


def cause(*logs: str) -> Finding:
    diagnosis = diagnose_texts(*logs)
    assert diagnosis.causes, "nothing was found"
    return diagnosis.causes[0]


def of_rank(rank: int, text: str) -> list[str]:
    return [f"[rank{rank}]: {line}" for line in text.split("\n")]


# -- one log ---------------------------------------------------------------------------------------


def test_a_cause_comes_before_its_consequences_wherever_it_stands() -> None:
    assert cause(f"{LOST}\nsome line\n{OOM}\n").name == "cuda-oom"


def test_a_timeout_is_the_cause_where_nothing_else_is_known() -> None:
    assert cause(f"{LOST}\n{TIMEOUT.format(0)}\n").name == "nccl-timeout"


def test_what_ran_out_of_memory_comes_before_the_timeouts_of_the_others() -> None:
    text = "\n".join([TIMEOUT.format(0), TIMEOUT.format(1), *of_rank(3, TRACE.format(OOM))])
    finding = cause(text)
    assert (finding.name, finding.rank) == ("cuda-oom", 3)


def test_an_exception_that_nothing_knows_is_the_users_own_with_his_frame() -> None:
    finding = cause(TRACE.format("ValueError: bad batch 17"))
    assert (finding.name, finding.number) == ("user-code-exception", 8)
    assert finding.frame is not None
    assert (finding.frame.file, finding.frame.line, finding.frame.function, finding.frame.code) == (
        "/home/me/train.py", 17, "step", "loss = model(batch)",
    )  # fmt: skip


SFT = """[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/me/train.py", line 12, in <module>
[rank0]:     trainer = SFTTrainer(model, args)
[rank0]:   File "/opt/env/lib/python3.11/site-packages/trl/trainer/sft_trainer.py", line 812, in f
[rank0]:     raise ValueError(
[rank0]: ValueError: packing needs position ids, which this collator drops.
[rank0]: - collator: Mine
[rank0]:
[rank0]: Set `packing=False`.
"""


def test_an_exception_that_no_signature_knows_has_low_confidence_and_its_whole_message() -> None:
    finding = cause(f"{SFT}srun: error: node1: task 0: Exited with exit code 1\nDone.\n")
    assert finding.confidence == LOW
    assert finding.message == (
        "ValueError: packing needs position ids, which this collator drops.\n"
        "- collator: Mine\n\nSet `packing=False`."
    )


def test_the_library_that_raised_an_exception_is_named_and_the_call() -> None:
    finding = cause(f"Successfully installed trl-1.16.0 peft-0.19.0\n{SFT}")
    assert finding.cause.startswith(
        "raised in trl 1.16.0 (trl/trainer/sft_trainer.py:812): a setting"
    )
    assert finding.remedy[0].endswith("called from /home/me/train.py:12")


def test_a_version_that_the_log_does_not_name_is_left_out() -> None:
    assert cause(SFT).cause.startswith("raised in trl (trl/trainer/sft_trainer.py:812): ")


def test_a_library_in_a_clone_is_no_code_of_the_user() -> None:
    finding = cause(SFT.replace("/opt/env/lib/python3.11/site-packages/trl", "/src/trl/trl"))
    assert finding.cause.startswith("raised in trl (trl/trainer/sft_trainer.py:812): ")
    assert finding.frame
    assert finding.frame.file == "/home/me/train.py"


def test_an_exception_of_the_users_own_line_names_no_library() -> None:
    text = 'Traceback (most recent call last):\n  File "/home/me/t.py", line 3, in f\n    g()\n'
    finding = cause(f"{text}ValueError: bad batch 17\n")
    assert (finding.library, finding.confidence) == (None, LOW)
    assert finding.cause == "an error in the program, settings or data"


BOX = """╭─────────── Traceback (most recent call last) ───────────╮
│ /home/me/train.py:14 in main                            │
│ ❱ 14     trainer = SFTTrainer(x)                        │
│ /env/lib/python3.11/site-packages/trl/trainer/x.py:81 in │
│ __init__                                                │
│ ❱ 81 │   │   raise ValueError("no")                     │
╰─────────────────────────────────────────────────────────╯
ValueError: packing needs position ids
"""


def test_a_traceback_that_rich_has_drawn_is_read() -> None:
    finding = cause(BOX)
    assert finding.frame
    assert (finding.frame.file, finding.frame.line) == ("/home/me/train.py", 14)
    assert finding.cause.startswith("raised in trl (trl/trainer/x.py:81): a setting or an argument")


def test_a_message_without_a_traceback_points_at_no_line() -> None:
    assert cause("ValueError: bad batch 17\n").remedy[0].startswith("the message is all that")


def test_the_message_is_whole_where_the_cause_is_only_likely() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/env/vllm/config/model.py", line 3, in check\n'
        "    raise ValueError(\nValueError: this pair of settings\nneeds --enforce-eager\n"
    )
    finding = cause(text)
    assert (finding.id, finding.likely) == ("vllm-engine-start-frame", True)
    assert finding.message == "ValueError: this pair of settings\nneeds --enforce-eager"


def test_an_exception_need_not_be_called_an_error() -> None:
    finding = cause(TRACE.format("zipfile.BadZipFile: File is not a zip file"))
    assert finding.line == "zipfile.BadZipFile: File is not a zip file"


def test_a_traceback_that_is_cut_off_is_a_failure() -> None:
    assert cause(TRACE.format("").rstrip("\n")).name == "user-code-exception"


def test_a_line_of_code_in_a_traceback_stands_for_the_exception_at_its_end() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/home/me/t.py", line 3, in <module>\n'
        '    raise RuntimeError("CUDA out of memory")\nRuntimeError: CUDA out of memory\n'
    )
    assert cause(text).number == 4


def test_what_a_worker_raised_is_told_not_that_it_was_raised_again() -> None:
    again = "ValueError: Caught ValueError in DataLoader worker process 0."
    inner = TRACE.format("ValueError: sample 20 is empty").replace(
        "Traceback", "Original Traceback"
    )
    finding = cause(f"{TRACE.format(again)}\n{inner}\n")
    assert finding.line == "ValueError: sample 20 is empty"


def test_an_import_that_a_program_did_without_is_not_the_cause() -> None:
    text = (
        f"{TRACE.format('ModuleNotFoundError: No module named swanlab')}\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        f"{TRACE.format('ValueError: bad batch 17')}\n"
    )
    assert cause(text).line == "ValueError: bad batch 17"


def test_the_named_cause_of_a_chain_is_the_cause() -> None:
    text = (
        f"{TRACE.format(OOM)}\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        f"{TRACE.format('RuntimeError: training failed')}\n"
    )
    assert cause(text).name == "cuda-oom"


def test_nothing_is_found_in_a_log_without_a_failure() -> None:
    diagnosis = diagnose_texts(
        "\n".join([*(BAR.format(step) for step in range(9)), "Training complete"])
    )
    assert (diagnosis.causes, diagnosis.failed) == ([], False)


# -- alarms that were none -------------------------------------------------------------------------


def test_an_alarm_after_which_the_job_went_on_is_no_failure() -> None:
    diagnosis = diagnose_texts(f"{BAR.format(3)}\n{OOM}\n{BAR.format(4)}\n{BAR.format(5)}\n")
    assert not diagnosis.failed
    assert [alarm.name for alarm in diagnosis.false_alarms] == ["cuda-oom"]


def test_a_bar_that_is_drawn_once_more_at_the_end_is_no_progress() -> None:
    assert cause(f"{BAR.format(3)}\n{OOM}\n{BAR.format(3)}").name == "cuda-oom"


def test_progress_of_another_rank_does_not_excuse_a_rank() -> None:
    text = "\n".join([*of_rank(2, TRACE.format(OOM)), "[rank0]: step 7 loss 0.3", LOST])
    assert cause(text).name == "cuda-oom"


def test_a_mere_warning_is_told_and_is_no_failure() -> None:
    diagnosis = diagnose_texts(
        "huggingface/tokenizers: The current process just got forked, after parallelism\n"
    )
    assert [cause.role for cause in diagnosis.causes] == ["warning"]
    assert not diagnosis.failed


def test_an_alarm_far_behind_is_not_the_cause_of_an_exception_at_the_end() -> None:
    caught = TRACE.format("ImportError: flash_attn_2_cuda.so: undefined symbol: _ZN3c10")
    steps = [f"{{'loss': 1.{step:02}, 'epoch': 0.1}}" for step in range(40)]
    last = TRACE.format("ValueError: bad batch 17")
    assert cause("\n".join([caught, *steps, last])).line == "ValueError: bad batch 17"


def test_an_alarm_just_before_the_end_is_the_cause_though_another_rank_printed_on() -> None:
    text = "\n".join([OOM, BAR.format(4), BAR.format(5), TRACE.format("ValueError: no reply")])
    assert cause(text).name == "cuda-oom"


# -- ranks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_tracebacks_of_ranks_that_wrote_at_once_are_read_apart(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    first = of_rank(3, TRACE.format("ValueError: bad batch 17"))
    rest = [of_rank(rank, TRACE.format(LOST)) for rank in (0, 1, 2)]
    lines, queues = [], [first, *rest]
    while any(queues):
        queue = chance.choice([queue for queue in queues if queue])
        lines.append(queue.pop(0))
    finding = cause("\n".join(lines))
    assert (finding.rank, finding.line) == (3, "[rank3]: ValueError: bad batch 17")
    assert finding.frame is not None
    assert finding.frame.line == 17


@pytest.mark.parametrize(
    "prefix",
    ["[rank3]: ", "[default3]:", "[3] ", " 3: ", "[1,3]<stderr>: ", "gpu1 | [3] "],
)
def test_prefixes_tell_the_rank(prefix: str) -> None:
    lines = TRACE.format("ValueError: bad batch 17").split("\n")
    finding = cause("\n".join(prefix + line for line in lines))
    assert (finding.rank, finding.name) == (3, "user-code-exception")


def test_a_rank_that_fell_silent_with_an_exception_comes_before_those_that_waited() -> None:
    text = "\n".join(
        [
            *of_rank(0, TRACE.format("ValueError: bad batch 17")),
            TIMEOUT.format(1),
            TIMEOUT.format(2),
        ]
    )
    finding = cause(text)
    assert (finding.name, finding.rank) == ("user-code-exception", 0)


def test_a_rank_that_went_on_after_an_exception_is_not_who_the_others_waited_for() -> None:
    caught = of_rank(0, TRACE.format("ValueError: no cache"))
    went_on = [f"[rank0]: read part {part}" for part in range(9)]
    assert cause("\n".join([*caught, *went_on, TIMEOUT.format(1)])).name == "nccl-timeout"


def test_what_another_rank_has_quoted_is_of_the_rank_that_raised_it() -> None:
    text = TRACE.format(
        "torch.distributed.checkpoint.api.CheckpointException: ranks:dict_keys([2])"
    )
    quoted = TRACE.format("OSError: [Errno 122] Disk quota exceeded").replace(
        "last):", "last): (RANK 2)"
    )
    finding = cause("\n".join(of_rank(0, f"{text}\n{quoted}")))
    assert (finding.name, finding.rank) == ("disk-full", 2)


# -- several logs ----------------------------------------------------------------------------------


def test_the_cause_is_looked_for_in_all_logs() -> None:
    finding = cause(f"{TIMEOUT.format(0)}\n", f"{TIMEOUT.format(1)}\n", TRACE.format(OOM))
    assert (finding.name, finding.rank, finding.path) == ("cuda-oom", 2, "rank-2.log")


def test_of_equal_causes_the_earliest_by_the_clock_counts() -> None:
    late = f"2024-05-01 10:00:09,500 start\n{TRACE.format('ValueError: late')}"
    early = f"2024-05-01 10:00:02,100 start\n{TRACE.format('ValueError: early')}"
    assert cause(late, early).line == "ValueError: early"


# -- how sure --------------------------------------------------------------------------------------


def test_a_single_cause_is_sure() -> None:
    assert cause(TRACE.format(OOM)).confidence == HIGH


def test_a_log_of_consequences_alone_is_not_sure() -> None:
    assert cause(f"{LOST}\n").confidence == LOW


def test_another_cause_that_explains_it_as_well_is_told() -> None:
    diagnosis = diagnose_texts(f"{OOM}\nOSError: [Errno 28] No space left on device\n")
    assert [cause.name for cause in diagnosis.causes] == ["cuda-oom", "disk-full"]
    assert diagnosis.causes[0].confidence != HIGH


def test_the_proof_holds_the_line_of_the_cause() -> None:
    finding = cause(f"{TRACE.format(OOM)}\n{TIMEOUT.format(1)}\n{LOST}\n")
    assert 3 <= len(finding.evidence) <= 10
    assert (finding.path, finding.number) in {(line.path, line.number) for line in finding.evidence}


def test_a_frame_is_the_users_own_behind_what_ray_carries() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/home/me/main.py", line 9, in <module>\n'
        "    ray.get(run)\nray.exceptions.RayTaskError(TypeError): ray::TaskRunner.run()\n"
        '  File "/home/me/reward.py", line 41, in score\n    gold["value"]\n'
        "TypeError: 'NoneType' object is not subscriptable\n"
    )
    frame = cause(text).frame
    assert frame is not None
    assert (frame.file, frame.line) == ("/home/me/reward.py", 41)


def test_a_frame_is_the_users_own_in_what_a_library_raised_for_its_own_exception() -> None:
    library = (
        '  File "/opt/env/lib/python3.11/site-packages/requests/models.py", line 1, in check\n'
    )
    text = (
        f"Traceback (most recent call last):\n{library}    raise error\n"
        "requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: /api\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        f"{TRACE.format('huggingface_hub.errors.HfHubHTTPError: 429 Client Error')}"
    )
    frame = cause(text).frame
    assert frame is not None
    assert (frame.file, frame.line, frame.own) == ("/home/me/train.py", 17, True)


def test_the_proof_holds_no_alarm_after_which_the_job_went_on() -> None:
    went_on = ["OSError: [Errno 28] No space left on device", *map(BAR.format, range(3, 6))]
    finding = cause("\n".join([*went_on, TRACE.format(OOM), LOST]))
    assert not any("No space" in line.text for line in finding.evidence)


def test_the_proof_holds_one_of_several_ranks_that_say_the_same() -> None:
    waited = [TIMEOUT.format(rank) for rank in range(4)]
    finding = cause("\n".join([TRACE.format(OOM), *waited, LOST]))
    assert sum("Watchdog" in line.text for line in finding.evidence) == 1


def test_the_proof_holds_the_rest_of_a_message() -> None:
    text = TRACE.format(
        "yaml.scanner.ScannerError: while scanning for the next token\n"
        "found character '\\t' that cannot start any token\n"
        '  in "fsdp.yaml", line 7, column 1\n\nbye'
    )
    finding = cause(text)
    assert [line.text.strip() for line in finding.evidence][
        -1
    ] == 'in "fsdp.yaml", line 7, column 1'


# -- real logs -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def read() -> list[failure_logs.Read]:
    return [failure_logs.read(record) for record in failure_logs.records()]


def test_real_logs_have_the_right_class_first(read: list[failure_logs.Read]) -> None:
    count, right, _ = failure_logs.shares(read)
    wrong = [(entry.record["id"], entry.top_class) for entry in read if not entry.right]
    assert right >= 0.95 * count, wrong


def test_real_logs_have_the_root_line(read: list[failure_logs.Read]) -> None:
    count, _, near = failure_logs.shares(read)
    assert near >= 0.85 * count


def test_no_failure_is_found_in_the_logs_of_healthy_runs(read: list[failure_logs.Read]) -> None:
    healthy = [entry for entry in read if entry.record["class"] == failure_logs.HEALTHY]
    assert [(entry.record["id"], entry.top_class) for entry in healthy if not entry.right] == []
