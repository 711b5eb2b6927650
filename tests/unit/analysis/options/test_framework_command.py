"""Options of LLaMA-Factory and ms-swift, from packages of their shape (0.9.5 and 4.6)."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from support.inputs.hf_packages import install

from safelaunch.analysis.option_model import FrameworkCommand
from safelaunch.analysis.options.framework_command import read_framework_command
from safelaunch.analysis.options.settings_problems import problems
from safelaunch.analysis.python.libraries import LibraryPaths
from safelaunch.model import Args

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.analysis.option_model import ScriptOptions

FILES = {
    "llamafactory/__init__.py": "",
    "llamafactory/hparams/__init__.py": "",
    "llamafactory/hparams/training_args.py": """
        from dataclasses import dataclass, field
        from transformers import Seq2SeqTrainingArguments
        if is_env_enabled("USE_MCA"):
            from mcore_adapter import Seq2SeqTrainingArguments as McaArguments
            BaseTrainingArguments = McaArguments
        else:
            BaseTrainingArguments = Seq2SeqTrainingArguments
        @dataclass
        class TrainingArguments(BaseTrainingArguments):
            fp8: bool = field(default=False)
    """,
    "llamafactory/hparams/parser.py": """
        from dataclasses import dataclass, field
        from typing import Literal
        from .training_args import TrainingArguments
        @dataclass
        class FinetuningArguments:
            stage: Literal["pt", "sft"] = field(default="sft")
        _TRAIN_ARGS = [TrainingArguments, FinetuningArguments]
        def _parse_args(parser, args=None, allow_extra_keys=False):
            return parser.parse_dict(args, allow_extra_keys=allow_extra_keys)
    """,
    "swift/__init__.py": "",
    "swift/cli/__init__.py": "",
    "swift/cli/main.py": "def parse_yaml_args(argv):\n    pass\n",
    "swift/arguments/__init__.py": """
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from .sft_args import SftArguments
    """,
    "swift/arguments/sft_args.py": """
        from dataclasses import dataclass, field
        from typing import Dict, List, Literal, Optional, Union
        from transformers import TrainingArguments as HfTrainingArguments
        @dataclass
        class SftArguments(HfTrainingArguments):
            model: str
            dataset: List[str] = field(default_factory=list)
            tuner_type: Optional[Literal["lora", "full"]] = None
            quant: Optional[Union[str, dict]] = None
    """,
    "swift/pipelines/__init__.py": "",
    "swift/pipelines/train/__init__.py": "",
    "swift/pipelines/train/sft.py": """
        from swift.arguments import SftArguments
        class SwiftSft:
            args_class = SftArguments
            args: args_class
    """,
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return install(tmp_path)


def read(site: Path, launcher: str, command: str) -> ScriptOptions | None:
    subcommand = FrameworkCommand(launcher, command)
    return read_framework_command(subcommand, lambda: LibraryPaths((str(site),)), None)


def complaints(site: Path, launcher: str, command: str, words: str, config: str = "") -> list[str]:
    options = read(site, launcher, command)
    assert options is not None
    assert not options.is_incomplete, options.why
    args = Args(words=tuple(words.split()))
    return [p.message for p in problems(options, args, {"c.yaml": config.encode()}.get)]


CONFIG = "stage: sft\nmax_steps: 3\nfp8: true\nnum_train_epochs: 1e-1\noutput_dir: ${out}/x\n"


def test_a_file_of_llamafactory_with_overrides_is_accepted(site: Path) -> None:
    words = "c.yaml max_steps=4 output_dir=o"
    assert complaints(site, "llamafactory", "train", words, CONFIG) == []
    config = CONFIG.replace("max_steps: 3", "max_steps: few")
    assert complaints(site, "llamafactory", "train", words, config) == []


@pytest.mark.parametrize(
    ("words", "line", "message"),
    [
        ("c.yaml", "max_step: 3\n", "c.yaml:6: the script has no setting `max_step`"),
        ("c.yaml", "bf16: maybe\n", "c.yaml:6: `bf16: maybe` is text, and LLaMA-Factory makes"),
        ("c.yaml max_step=3", "", "the script has no setting `max_step`"),
        ("c.yaml max_steps=few", "", "`max_steps: few` is text, and LLaMA-Factory makes no"),
        ("--max_stepz 3", "", "the script has no option `--max_stepz`"),
    ],
)
def test_wrong_settings_of_llamafactory_are_named(
    site: Path, words: str, line: str, message: str
) -> None:
    (result,) = complaints(site, "llamafactory", "train", words, CONFIG + line)
    assert message in result


def test_an_alias_with_two_installed_candidates_is_not_judged(site: Path) -> None:
    (site / "mcore_adapter").mkdir()
    (site / "mcore_adapter" / "__init__.py").write_text("class Seq2SeqTrainingArguments: ...\n")
    options = read(site, "llamafactory", "train")
    assert options is not None
    assert options.is_incomplete


def test_options_of_swift_are_accepted(site: Path) -> None:
    words = "--model m --dataset a b --tuner_type lora --quant {} --max_steps 3"
    assert complaints(site, "swift", "sft", words) == []


def test_wrong_options_of_swift_are_named(site: Path) -> None:
    words = "--model m --tuner_typee lora --tuner_type fulll"
    assert complaints(site, "swift", "sft", words) == [
        "the script has no option `--tuner_typee`",
        "`--tuner_type fulll` is not one of its choices",
    ]


def test_a_file_of_swift_becomes_options_before_others(site: Path) -> None:
    config = "ENV: {A: b}\nmodel: m\ndataset: [a, b]\nmax_steps: 3\n"
    assert complaints(site, "swift", "sft", "c.yaml --tuner_type lora", config) == []
    assert complaints(site, "swift", "sft", "c.yaml --tuner_type x", config + "modle: m\n") == [
        "`--tuner_type x` is not one of its choices",
        "c.yaml:5: the script has no option `--modle`",
    ]
    assert complaints(site, "swift", "sft", "c.yaml", "model: m\nmax-steps: 3\nmax_st: 3\n") == []
    assert complaints(site, "swift", "sft", "c.yaml", "max_steps: 3\n") == [
        "the script requires `--model`"
    ]


def test_a_program_of_swift_reads_no_file(site: Path) -> None:
    program = FrameworkCommand("swift", "sft", reads_files=False)
    options = read_framework_command(program, lambda: LibraryPaths((str(site),)), None)
    assert options is not None
    assert options.settings == ()


@pytest.mark.parametrize(
    ("launcher", "command"),
    [("swift", "rollout"), ("llamafactory", "export"), ("axolotl", "train"), ("swift", "")],
)
def test_other_commands_are_not_judged(site: Path, launcher: str, command: str) -> None:
    assert read(site, launcher, command) is None


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("llamafactory/hparams/parser.py", "_TRAIN_ARGS", "_ARGS"),
        ("llamafactory/hparams/parser.py", "parse_dict", "parse_mapping"),
        ("swift/pipelines/train/sft.py", "args_class = SftArguments", "args_class = choose()"),
    ],
)
def test_a_version_of_another_shape_is_not_judged(
    site: Path, file: str, old: str, new: str
) -> None:
    (site / file).write_text((site / file).read_text().replace(old, new))
    launcher, command = ("swift", "sft") if "swift" in file else ("llamafactory", "train")
    options = read(site, launcher, command)
    assert options is not None
    assert options.is_incomplete
