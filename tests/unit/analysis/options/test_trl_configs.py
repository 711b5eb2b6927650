"""Which configurations of TRL a program uses, and which one the command line is read into."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.inputs.option_scripts import write

from safelaunch.analysis.imports.follow import read_imports
from safelaunch.analysis.options.trl_configs import TrlConfigs, read_configs
from safelaunch.analysis.python.trees import Trees

if TYPE_CHECKING:
    from pathlib import Path

PARSED = """
from trl import GRPOConfig, GRPOTrainer, ModelConfig, ScriptArguments, TrlParser
def main():
    {}
if __name__ == "__main__":
    main()
"""
PLAIN = """parser = TrlParser((ScriptArguments, GRPOConfig, ModelConfig))
    script, training, model = parser.parse_args_and_config()"""
NAMED = """kinds = (ScriptArguments, GRPOConfig, ModelConfig)
    parser = TrlParser(dataclass_types=kinds)
    script, training, model, rest = parser.parse_args_and_config(return_remaining_strings=True)"""
HF = """from transformers import HfArgumentParser
    training, = HfArgumentParser(GRPOConfig).parse_args_into_dataclasses()"""
PARSERS = {"plain": PLAIN, "a name": NAMED, "transformers": HF}
UNSURE = {
    "no parser": "config = GRPOConfig(num_generations=4)",
    "other defaults": PLAIN.replace(")\n", ")\n    parser.set_defaults(num_generations=4)\n"),
    "other words": PLAIN.replace("config()", "config(['--x', '1'])"),
    "other words by name": PLAIN.replace("config()", "config(args=words)"),
    "two parsers": PLAIN + "\n    " + PLAIN.replace("GRPO", "SFT"),
    "two configurations": PLAIN.replace("ModelConfig", "SFTConfig"),
    "only a model": PLAIN.replace("GRPOConfig, ", ""),
}


def read(folder: Path, text: str, **files: str) -> TrlConfigs | None:
    script, trees = write(folder, text, **files), Trees()
    return read_configs(str(script), read_imports(script, [folder], trees=trees, seconds=30), trees)


@pytest.mark.parametrize("how", PARSERS.values(), ids=PARSERS)
def test_the_configuration_that_a_parser_makes_reads_the_command_line(
    how: str, tmp_path: Path
) -> None:
    assert read(tmp_path, PARSED.format(how)) == TrlConfigs(frozenset({"GRPOConfig"}), "GRPOConfig")


@pytest.mark.parametrize("how", UNSURE.values(), ids=UNSURE)
def test_where_that_is_not_certain_none_reads_it(how: str, tmp_path: Path) -> None:
    imported = PARSED.replace("import GRPOConfig", "import SFTConfig, GRPOConfig")
    result = read(tmp_path, imported.format(how))
    assert result is not None
    assert "GRPOConfig" in result.config_names
    assert result.parsed is None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("from trl import SFTTrainer, ModelConfig\n", {"SFTConfig"}),
        ("from trl.trainer.dpo_config import DPOConfig as Mine\n", {"DPOConfig"}),
        ("import trl\nx = trl.GRPOTrainer\n", {"GRPOConfig"}),
        ("import trl as t\nx = t.trainer.kto_config.KTOConfig\n", {"KTOConfig"}),
        ("from peft import LoraConfig  # not trl\nGRPOConfig = 1\n", set()),
        ("import torch\n", set()),
    ],
)
def test_a_class_is_known_by_its_full_name(text: str, named: set[str], tmp_path: Path) -> None:
    assert read(tmp_path, text) == TrlConfigs(frozenset(named))


def test_a_class_of_the_projects_own_is_named_and_its_defaults_are_not_known(
    tmp_path: Path,
) -> None:
    text = PARSED.format(PLAIN).replace("import GRPOConfig, ", "import ")
    own = "import trl\nclass GRPOConfig(trl.GRPOConfig):\n    num_generations: int = 4\n"
    result = read(tmp_path, "from own import GRPOConfig\n" + text, own=own)
    assert result == TrlConfigs(frozenset({"GRPOConfig"}))


@pytest.mark.parametrize(
    "text", ["import sys\nsys.path.insert(0, sys.argv[1])\nimport x\n", "def f(:\n"]
)
def test_of_a_program_that_is_not_wholly_read_nothing_is_known(text: str, tmp_path: Path) -> None:
    assert read(tmp_path, text) is None


def test_deep_nesting_is_no_trouble(tmp_path: Path) -> None:
    assert read(tmp_path, "import trl\nx = " + ".b".join("a" * 5000) + "\n") is None


ARGUMENTS = """
from transformers import HfArgumentParser, {0}
if __name__ == "__main__":
    model, training = HfArgumentParser((Model, {0})).parse_args_into_dataclasses()
"""


@pytest.mark.parametrize("name", ["TrainingArguments", "Seq2SeqTrainingArguments"])
def test_the_arguments_of_transformers_read_the_command_line_too(name: str, tmp_path: Path) -> None:
    arguments = "TrainingArguments"
    assert read(tmp_path, ARGUMENTS.format(name)) == TrlConfigs(frozenset({arguments}), arguments)


def test_arguments_that_a_program_makes_itself_read_no_command_line(tmp_path: Path) -> None:
    text = "import transformers\ntransformers.TrainingArguments(fp16=True)\n"
    result = read(tmp_path, text)
    assert result == TrlConfigs(frozenset({"TrainingArguments"}), None)
