"""Small packages of the shape of transformers 5.24 and TRL 1.16, installed as text alone."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "transformers/__init__.py": """
        from typing import TYPE_CHECKING
        _import_structure = {"hf_argparser": ["HfArgumentParser"], "training_args": []}
        if TYPE_CHECKING:
            from .hf_argparser import HfArgumentParser
            from .training_args import (  # noqa
                TrainingArguments,
            )
            from .training_args_seq2seq import Seq2SeqTrainingArguments as Seq2SeqTrainingArguments
        else:
            import sys
            sys.modules[__name__] = _LazyModule(__name__, _import_structure)
    """,
    "transformers/hf_argparser.py": """
        class HfArgumentParser:
            def _parse_dataclass_field(parser, field):
                long_options = [f"--{field.name}"]
            def parse_dict(self, args, allow_extra_keys=False): ...
    """,
    "transformers/utils/__init__.py": "from .generic import ExplicitEnum\n",
    "transformers/utils/generic.py": "from enum import Enum\nclass ExplicitEnum(str, Enum): ...\n",
    "transformers/trainer_utils.py": """
        from .utils import ExplicitEnum
        class IntervalStrategy(ExplicitEnum):
            NO = "no"
            STEPS = "steps"
            EPOCH = "epoch"
    """,
    "transformers/training_args.py": '''
        import os
        from dataclasses import dataclass, field
        from typing import Any, Optional, Union
        from .trainer_utils import IntervalStrategy
        def default_logdir() -> str:
            """
            def nested(): the text of a docstring
            """
            return "x"
        @dataclass
        class TrainingArguments:
            """
            Parameters:
                output_dir (`str`): where

            def example(self):
                not a field: int
            """
            framework = "pt"
            _VALID_DICT_FIELDS = ["fsdp_config"]
            output_dir: Optional[str] = field(default=None, metadata={"help": "x"})
            num_train_epochs: float = field(default=3.0)
            max_steps: int = field(default=-1, metadata={"help": "a (b"})
            bf16: bool = field(default=False)
            dataloader_pin_memory: bool = field(default=True)
            tf32: bool | None = field(default=None)
            compile: bool | None = field(default=None, metadata={"nargs": "?", "const": True})
            eval_strategy: Union[IntervalStrategy, str] = field(default="no")
            lr_scheduler_kwargs: dict | str | None = field(default=None)
            liger_kernel_config: Optional[dict[str, bool]] = field(default=None)
            report_to: None | str | list[str] = field(default=None)
            label_names: Optional[list[str]] = field(default=None)
            resume_from_checkpoint: Optional[str] = field(default=None)
            per_device_train_batch_size: int = field(
                default=8, metadata={"aliases": ["--batch", "-b"], "help": "x"}
            )
            log_level: str = field(default="passive", metadata={"choices": levels.keys()})
            optim: str = field(default="adamw_torch")
            train_sampling_strategy: str = field(default="random")
            _n_gpu: int = field(init=False, repr=False, default=-1)
            def __post_init__(self):
                later: int = 3
            @property
            def device(self) -> "torch.device":
                return 1
    ''',
    "transformers/training_args_seq2seq.py": """
        from dataclasses import dataclass, field
        from .training_args import TrainingArguments
        from .utils import add_start_docstrings
        @dataclass
        @add_start_docstrings(TrainingArguments.__doc__)
        class Seq2SeqTrainingArguments(TrainingArguments):
            predict_with_generate: bool = field(default=False)
    """,
    "trl/__init__.py": """
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from .scripts import ScriptArguments, TrlParser
            from .trainer import SFTConfig
    """,
    "trl/trainer/__init__.py": """
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from .sft_config import SFTConfig
    """,
    "trl/trainer/base_config.py": """
        from dataclasses import dataclass, field
        from transformers import TrainingArguments
        @dataclass
        class _BaseConfig(TrainingArguments):
            bf16: bool | None = field(default=None)
    """,
    "trl/trainer/sft_config.py": """
        from dataclasses import dataclass, field
        from .base_config import _BaseConfig
        @dataclass
        class SFTConfig(_BaseConfig):
            max_length: int | None = field(default=1024)
    """,
    "trl/scripts/__init__.py": "from .utils import ScriptArguments, TrlParser\n",
    "trl/scripts/_hf_argparser.py": """
        class HfArgumentParser:
            def _parse_dataclass_field(parser, field):
                long_options = [f"--{field.name}"]
                accepts_none = False
    """,
    "trl/scripts/utils.py": """
        from dataclasses import dataclass, field
        from trl.scripts._hf_argparser import HfArgumentParser
        @dataclass
        class ScriptArguments:
            dataset_name: str = field(metadata={"help": "x"})
        class TrlParser(HfArgumentParser):
            def parse_args_and_config(
                self, args=None, return_remaining_strings=False, fail_with_unknown_args=True
            ):
                return self.parse_args_into_dataclasses(args=args)
    """,
    "trl/scripts/sft.py": """
        def main(script_args, training_args): ...
        def make_parser(subparsers=None, prog=None):
            from trl import ScriptArguments, SFTConfig, TrlParser
            dataclass_types = (ScriptArguments, SFTConfig)
            if subparsers is not None:
                parser = subparsers.add_parser("sft", dataclass_types=dataclass_types)
            else:
                parser = TrlParser(dataclass_types, prog=prog)
            return parser
        if __name__ == "__main__":
            parser = make_parser()
            a, b = parser.parse_args_and_config(fail_with_unknown_args=False)
            main(a, b)
    """,
    "accelerate/commands/launch.py": """
        def launch_command_parser():
            parser.add_argument("--num_processes", type=int)
            parser.add_argument("--mixed_precision", type=str)
    """,
}


def install(site: Path) -> Path:
    """Write the packages into a folder of packages; return it."""
    for name, text in FILES.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    for name in ("accelerate/__init__.py", "accelerate/commands/__init__.py"):
        (site / name).write_text("", encoding="utf-8")
    return site


def environment(folder: Path) -> Path:
    """Make a virtual environment with the packages as files alone; return its interpreter."""
    install(folder / "lib" / "python3.12" / "site-packages")
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n", encoding="utf-8")
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.write_text("", encoding="utf-8")
    return python
