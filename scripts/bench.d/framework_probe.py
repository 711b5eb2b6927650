"""What the classes of installed frameworks say about options: run by an interpreter that has them.

`python framework_probe.py CASES ANSWERS` reads a JSON list of cases and writes one of answers. Each
case is judged in a child, as the process of rank 0 of a group that has no other processes: nothing
is trained, no port is opened, and no GPU is used. The standard library is enough to import this.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shlex
import signal
import sys
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

from swift_probe import SWIFT_MODULES, ask_swift

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ACCEPTED, REFUSED, BROKEN = "accepted", "refused", "broken"
_LIMIT = 90  # seconds for one case


class Case(NamedTuple):
    """Options of a program, and which part of a framework judges them."""

    way: str  # a key of _WAYS
    configuration: str  # module and class, for what builds one: `trl.GRPOConfig`
    args: str
    launcher_args: str
    configs: Mapping[str, Any]
    world: int
    gpus: int | None = None  # of the machine


class Answer(NamedTuple):
    """What became of a case; broken: an error that says nothing about the options."""

    outcome: str
    text: str


def _build(case: Case) -> Any:
    """Return the configuration that the framework's own parser makes of the arguments."""
    words = [*shlex.split(case.args), "--output_dir", "output", "--use_cpu", "true"]
    module, _, name = case.configuration.rpartition(".")
    if not words[0].startswith("-"):  # a file of settings: `llamafactory train FILE`
        values = json.loads(_read(words[0]))
        words = [*(w for k, v in values.items() for w in (f"--{k}", str(v))), *words[1:]]
    parser: Any = importlib.import_module("trl").TrlParser
    built = parser((getattr(importlib.import_module(module), name),)).parse_args_and_config(words)
    return built[0]


def _train(case: Case) -> None:
    """Make a Trainer, and hand its options to DeepSpeed if they name it."""
    if case.launcher_args:
        _enter_launch(case.launcher_args)
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    for name in case.configs:
        if not name.endswith(".json"):
            continue
        # the Trainer refuses a DeepSpeed file without this block
        values = {"zero_optimization": {"stage": 1}, **json.loads(_read(name))}
        _write(name, values)
    args = _build(case)
    trainer = transformers.Trainer(model=torch.nn.Linear(2, 2), args=args, eval_dataset=[0])
    if trainer.is_deepspeed_enabled:
        trainer.accelerator.state.deepspeed_plugin.hf_ds_config.trainer_config_finalize(
            args, trainer.model, 1
        )


def _enter_launch(line: str) -> None:
    """Set the variables that `accelerate launch` would set for the script."""
    launch: Any = importlib.import_module("accelerate.utils.launch")
    args = _launch(line)
    args.deepspeed_fields_from_accelerate_config = ""  # as if without a file of accelerate
    env = (
        launch.prepare_deepspeed_cmd_env(args)[1]
        if args.use_deepspeed
        else launch.prepare_multi_gpu_env(args)
    )
    os.environ.update({k: v for k, v in env.items() if k.startswith("ACCELERATE_")})


def _launch(line: str) -> Any:
    """Return what `accelerate launch` makes of its options, before it starts anything."""
    command: Any = importlib.import_module("accelerate.commands.launch")
    args = command.launch_command_parser().parse_args([*shlex.split(line), "train.py"])
    return command._validate_launch_command(args)[0]  # noqa: SLF001 - the rest starts processes


def _deepspeed(case: Case) -> None:
    """Make DeepSpeed's own configuration of its file."""
    deepspeed: Any = importlib.import_module("deepspeed")
    config: Any = importlib.import_module("deepspeed.runtime.config")
    deepspeed.comm.init_distributed("gloo", auto_mpi_discovery=False)
    [file] = (name for name in case.configs if name.endswith(".json"))
    values = json.loads(_read(file))
    if not any("batch" in key for key in values):  # it needs a size; these samples are not about it
        values["train_micro_batch_size_per_gpu"] = 1
    config.DeepSpeedConfig(values)


_WAYS: Mapping[str, Callable[[Case], object]] = {
    "configuration": _build,
    "trainer": _train,
    "deepspeed": _deepspeed,
    "launch": lambda case: _launch(case.launcher_args),
    "swift": lambda case: ask_swift(case.args, case.world, case.gpus),
}


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _write(path: str, content: Any) -> None:
    """Write JSON, which is YAML too."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file)


def _enter_group(world: int) -> None:
    """Become rank 0 of a group, whose other ranks do not exist."""
    torch: Any = importlib.import_module("torch.distributed")
    fake: Any = importlib.import_module("torch.testing._internal.distributed.fake_pg")
    sizes = {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "RANK": 0, "LOCAL_RANK": 0}
    os.environ.update({name: str(size) for name, size in sizes.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    torch.init_process_group("fake", store=fake.FakeStore(), rank=0, world_size=world)


def framework_answer(case: Case) -> Answer:
    """Return what a framework says of a case. It changes this process: once in each."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, content in case.configs.items():
            _write(name, content)
        try:
            _enter_group(case.world)
            _WAYS[case.way](case)
        except (ValueError, AssertionError) as e:
            return Answer(REFUSED, f"{type(e).__name__}: {e}")
        except (Exception, SystemExit) as e:  # noqa: BLE001 - a framework's own, of any kind
            # DeepSpeed's error is an Exception of its own, and no ValueError
            outcome = REFUSED if type(e).__name__ == "DeepSpeedConfigError" else BROKEN
            return Answer(outcome, f"{type(e).__name__}: {e}")
        finally:
            os.chdir("/")
    return Answer(ACCEPTED, "")


def _in_child(case: Case) -> Answer:
    """Judge a case in a fork, which has the libraries already."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        signal.alarm(_LIMIT)
        with contextlib.suppress(BaseException), open(writing, "w", encoding="utf-8") as pipe:
            json.dump(framework_answer(case), pipe)
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return Answer(*json.loads(text)) if text else Answer(BROKEN, f"no answer in {_LIMIT} s")


def main(words: Sequence[str]) -> None:
    """Judge the cases of a file."""
    source, target = words
    cases = [Case(*values) for values in json.loads(_read(source))]
    libraries = ("torch", "trl", "transformers", "accelerate.commands.launch", "deepspeed")
    for name in (*libraries, *SWIFT_MODULES):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    answers = [_in_child(case) for case in cases]
    _write(target, answers)


if __name__ == "__main__":
    main(sys.argv[1:])
