"""Options of programs whose dataclasses are those of installed libraries."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from support.inputs.hf_packages import FILES, install
from support.inputs.option_scripts import write

from safelaunch.analysis.options.read import ScriptOptions, read_options
from safelaunch.analysis.options.settings_problems import problems
from safelaunch.analysis.options.trl_command import read_trl_command
from safelaunch.analysis.python.libraries import LibraryPaths
from safelaunch.model import Args

if TYPE_CHECKING:
    from pathlib import Path

TRAINER = """
from transformers import HfArgumentParser, TrainingArguments
parser = HfArgumentParser(TrainingArguments)
(args,) = parser.parse_args_into_dataclasses()
"""
TRL = """
from trl import ScriptArguments, SFTConfig, TrlParser
parser = TrlParser((ScriptArguments, SFTConfig))
a, b = parser.parse_args_and_config()
"""
IDIOM = """
import os, sys
from dataclasses import dataclass
from transformers import HfArgumentParser, TrainingArguments
@dataclass
class Mine:
    model: str
parser = HfArgumentParser((Mine, TrainingArguments))
if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
    a, b = parser.parse_json_file(json_file=os.path.abspath(sys.argv[1]))
elif len(sys.argv) == 2 and sys.argv[1].endswith((".yaml", ".yml")):
    a, b = parser.parse_yaml_file(sys.argv[1])
else:
    a, b = parser.parse_args_into_dataclasses()
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return install(tmp_path / "site")


def read(site: Path, script: str = TRAINER, **files: str) -> ScriptOptions:
    """Return the options of a script beside the packages."""
    path = write(site.parent / "project", script, **files)
    options = read_options(path, [], library_paths=lambda: LibraryPaths((str(site),)), seconds=None)
    assert options is not None
    return options


def complaints(
    site: Path, words: str, script: str = TRAINER, config: str = "", name: str = "c.yaml"
) -> list[tuple[str, str]]:
    """Return message and fix of each problem of a command line; `config` is the file c.yaml."""
    options = read(site, script)
    assert not options.is_incomplete, options.why
    args = Args(words=tuple(words.split()))
    files = {name: dedent(config).encode()}
    return [(p.message, p.fix) for p in problems(options, args, files.get)]


def no_file(_path: str) -> bytes | None:
    return None


ACCEPTED = (
    "",
    "--output_dir o --num-train-epochs 1e-1 --max_steps 3",
    "--bf16 --tf32 no --compile --no_dataloader_pin_memory --dataloader-pin-memory 0",
    "--compile true --eval_strategy epoch --label_names a b",
    "--lr_scheduler_kwargs {} --report_to wandb --batch 3 -b 3 --log_level quiet",
    "--max_s 3",
)


@pytest.mark.parametrize("words", ACCEPTED)
def test_options_that_training_arguments_have_are_accepted(site: Path, words: str) -> None:
    assert complaints(site, words) == []


REFUSED = {
    "--per_device_train_batchsize 3": (
        "no option",
        "did you mean `--per_device_train_batch_size`?",
    ),
    "--evaluation_strategy no": ("no option", "write `--eval_strategy`, which replaces it"),
    "--overwrite_output_dir": ("no option", "remove `--overwrite_output_dir`: this version"),
    "--logging_dir a": ("no option", "remove `--logging_dir`, and set the variable TENSORBOARD_"),
    "--rpo_alpha 1": ("no option", "remove `--rpo_alpha`: this version has no such option"),
    "--group_by_length": ("no option", "`--train_sampling_strategy group_by_length`"),
    "--adafactor": ("no option", "write `--optim adafactor`, which replaces it"),
    "--bf16 maybe": ("is neither true nor false", "give it `true` or `false`"),
    "--tf32": ("takes a value, got none", "write `--tf32 true`"),
    "--max_steps 1e1": ("is not a whole number", "write 10"),
    "--eval_strategy step": ("is not one of its choices", "did you mean `steps`?"),
    "--no_dataloader_pin_memory false": ("takes no value", "remove `--no_dataloader_pin_memory`"),
    "--liger_kernel_config {}": ("argparse makes no mapping of it", ""),
    "--report_to wandb tensorboard": ("takes 1 value, got 2", "remove `tensorboard`"),
    "--framework pt": ("no option", "remove `--framework`"),
    "--_n_gpu 1": ("no option", ""),
    "--later 1": ("no option", ""),
    "--not 1": ("no option", ""),
}


@pytest.mark.parametrize(("words", "problem"), REFUSED.items(), ids=REFUSED)
def test_options_that_training_arguments_refuse_are_named(
    site: Path, words: str, problem: tuple[str, str]
) -> None:
    ((message, fix),) = complaints(site, words)
    assert problem[0] in message
    assert problem[1] in fix


def test_a_mapping_passes_the_word_where_a_switch_is_refused(site: Path) -> None:
    args = Args((("tf32", True),), ("--tf32",), is_mapping=True)
    (problem,) = problems(read(site), args, no_file)
    assert problem.fix == 'write `tf32: "true"`, which passes the word'


def test_a_version_without_dashes_has_none(site: Path) -> None:
    (site / "transformers" / "hf_argparser.py").write_text("class HfArgumentParser: ...\n")
    assert complaints(site, "--max_steps 3") == []
    assert complaints(site, "--max-steps 3") != []


def test_a_required_field_is_missed(site: Path) -> None:
    assert complaints(site, "", TRL) == [
        ("the script requires `--dataset_name`", "add `--dataset_name` with its value")
    ]


def test_classes_of_the_project_add_to_those_of_libraries(site: Path) -> None:
    script = """
        from dataclasses import dataclass, field
        from transformers import HfArgumentParser, Seq2SeqTrainingArguments
        class Mixin:
            annotated: int = 1
        @dataclass
        class Mine(Mixin, Seq2SeqTrainingArguments):
            bf16: bool = True
            lora: int = field(default=8)
        class Plain(Mine):
            ignored: int = 1
        (args,) = HfArgumentParser(Plain).parse_args_into_dataclasses()
    """
    names = read(site, script).names()
    assert {"--lora", "--predict_with_generate", "--no_bf16", "--max_steps"} <= names.keys()
    assert not {"--ignored", "--annotated"} & names.keys()


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("max_steps: int", "if x:\n        a: int = 1\n    max_steps: int", "under a condition"),
        ('metadata={"help": "a (b"}', "metadata=META", "metadata is computed"),
        ("@dataclass", "@decorated", "not a plain dataclass"),
    ],
)
def test_a_class_that_is_not_plain_is_not_judged(site: Path, old: str, new: str, why: str) -> None:
    file = site / "transformers" / "training_args.py"
    file.write_text(file.read_text().replace(old, new))
    options = read(site)
    assert options.is_incomplete
    assert why in options.why


def test_a_library_that_is_not_installed_is_not_judged(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    options = read(tmp_path / "site")
    assert options.is_incomplete
    assert "`transformers.TrainingArguments` is neither" in options.why


def test_a_file_of_arguments_beside_the_script_leaves_it_open(site: Path) -> None:
    read(site)
    (site.parent / "project" / "train.args").write_text("--max_steps 3")
    assert read(site).is_incomplete


# -- settings files --------------------------------------------------------------------------------

CONFIG = """\
env:
  A: b
dataset_name: a/b
num_train_epochs: 1e-1
max_steps: 8
bf16: true
lr_scheduler_kwargs: {a: 1}
"""


def test_a_config_of_trl_sets_fields_and_the_environment(site: Path) -> None:
    assert complaints(site, "--config c.yaml --max_steps 3", TRL, CONFIG) == []


@pytest.mark.parametrize(
    ("line", "message", "fix"),
    [
        (
            "max_step: 3",
            "c.yaml:8: the script has no setting `max_step`",
            "did you mean `max_steps`?",
        ),
        ("evaluation_strategy: no", "c.yaml:8: the script has no", "write `eval_strategy`"),
        ("max_steps: 1e1", "c.yaml:8: `max_steps: 1e1` is not a whole number", "write 10"),
        ("bf16: maybe", "c.yaml:8: `bf16: maybe` is neither true nor false", "write true or false"),
        ("liger_kernel_config: x", "argparse makes no mapping of it", "write a mapping"),
    ],
)
def test_a_wrong_entry_of_a_config_is_named_with_its_line(
    site: Path, line: str, message: str, fix: str
) -> None:
    ((text, advice),) = complaints(site, "--config c.yaml", TRL, CONFIG + line)
    assert message in text
    assert fix in advice


@pytest.mark.parametrize("line", ["eval_strategy: whatever", "tf32: 1", "report_to: [a, b]"])
def test_a_default_that_argparse_does_not_compare_is_accepted(site: Path, line: str) -> None:
    assert complaints(site, "--config c.yaml", TRL, CONFIG + line) == []


@pytest.mark.parametrize("words", ["c.yaml --dataset_name a", "--config=c.yaml --dataset_name a"])
def test_a_config_that_is_not_named_by_its_option_is_told_how(site: Path, words: str) -> None:
    ((_, fix),) = complaints(site, words, TRL, CONFIG)
    assert fix == "write `--config c.yaml`"


def test_a_key_that_trl_ignores_is_said_to_be_ignored(site: Path) -> None:
    script = TRL.replace("and_config()", "and_config(fail_with_unknown_args=False)")
    ((message, _),) = complaints(site, "--config c.yaml", script, CONFIG + "num_processes: 2")
    assert message.endswith("`num_processes`: TrlParser ignores it")


@pytest.mark.parametrize("words", ["--max-steps 3", "--max_steps=3", "--max_s 3"])
def test_an_entry_that_an_option_overrides_may_have_any_value(site: Path, words: str) -> None:
    config = "dataset_name: a\nmax_steps: few\n"
    assert complaints(site, f"--config c.yaml {words}", TRL, config) == []


def test_a_config_that_cannot_be_read_makes_no_field_missing(site: Path) -> None:
    assert complaints(site, "--config other.yaml", TRL) == []
    assert complaints(site, "--config c.yaml", TRL, "- a\n- b\n") == []


def test_options_that_are_dropped_are_said_to_be_ignored(site: Path) -> None:
    script = TRL.replace("a, b = ", "a, b, _ = ").replace(
        "()\n", "(return_remaining_strings=True)\n"
    )
    ((message, _),) = complaints(site, "--dataset_name a --max_lengthh 3", script)
    assert message == "the script has no option `--max_lengthh` and ignores it"


def test_an_unknown_version_of_trl_is_not_judged(site: Path) -> None:
    file = site / "trl" / "scripts" / "utils.py"
    file.write_text(file.read_text().replace("fail_with_unknown_args", "strict"))
    assert read(site, TRL).is_incomplete


@pytest.mark.parametrize(
    ("name", "config", "problem"),
    [
        ("c.json", '{"model": "a", "max_steps": 3}', ""),
        ("c.json", '{\n"model": "a",\n"max_step": 3}', "c.json:3: the script has no setting"),
        ("c.json", '{"max_steps": 3}', "c.json: the script requires `model`"),
        ("c.json", '{"model": "a", "bf16": "maybe"}', "is text, and HfArgumentParser makes"),
        ("c.json", '{"model": "a", "bf16": "true", "max_steps": "3"}', ""),
        ("c.yaml", "model: a\nmax_steps: 3\n", ""),
        ("c.yml", "model: a\nmax_steps: few\n", "c.yml:2: `max_steps: few` is text"),
        ("c.yaml", "model: a\nnum_train_epochs: 1e-5\n", ""),  # the check of settings files
    ],
)
def test_the_only_argument_is_a_file_with_the_fields(
    site: Path, name: str, config: str, problem: str
) -> None:
    result = complaints(site, name, IDIOM, config, name)
    assert len(result) == bool(problem)
    assert problem in "".join(message for message, _ in result)


def test_a_file_beside_options_is_no_settings_file(site: Path) -> None:
    assert complaints(site, "--model m --max_steps 3", IDIOM) == []
    ((message, _),) = complaints(site, "c.json --model m", IDIOM, "{}", "c.json")
    assert "no positional arguments" in message


# -- programs of the libraries ---------------------------------------------------------------------


def test_a_module_of_a_library_is_read_as_a_program(site: Path) -> None:
    options = read_options(
        site / "trl" / "scripts" / "sft.py",
        [],
        is_module=True,
        is_library=True,
        library_paths=lambda: LibraryPaths((str(site),)),
    )
    assert options is not None
    assert not options.is_incomplete, options.why
    assert "--max_length" in options.names()


def test_the_trl_command_has_the_options_of_accelerate_too(site: Path) -> None:
    options = read_trl_command("sft", LibraryPaths((str(site),)), None)
    assert options is not None
    words = "--dataset_name a --num_processes 2 --mixed-precision bf16 --accelerate_config zero3"
    assert list(problems(options, Args(words=tuple(words.split())), no_file)) == []
    wrong = Args(words=("--dataset_name", "a", "--num_processs", "2"))
    (problem,) = problems(options, wrong, no_file)
    assert problem.fix == "did you mean `--num_processes`?"


def test_a_settings_file_of_the_trl_command_may_name_processes(site: Path) -> None:
    options = read_trl_command("sft", LibraryPaths((str(site),)), None)
    assert options is not None
    files = {"c.yaml": b"dataset_name: a\nnum_processes: 2\n"}
    args = Args(words=("--config", "c.yaml"))
    assert list(problems(options, args, files.get)) == []


@pytest.mark.parametrize("command", ["env", "vllm-serve", "../x"])
def test_a_trl_command_without_such_a_script_is_not_judged(site: Path, command: str) -> None:
    assert read_trl_command(command, LibraryPaths((str(site),)), None) is None


def test_a_project_that_is_the_library_is_read_instead_of_it(tmp_path: Path) -> None:
    site = install(tmp_path / "site")
    for name, text in FILES.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).replace("max_length", "max_size"))
    script = tmp_path / "project" / "train.py"
    script.write_text(TRL)
    options = read_options(
        script, [tmp_path / "project"], library_paths=lambda: LibraryPaths((str(site),))
    )
    assert options is not None
    assert not options.is_incomplete, options.why
    assert "--max_size" in options.names()
