"""Files of other programs in place of a job file: recognised, with the command that runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from safelaunch.config.resolve import read_job
from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

RUN = "safelaunch run -- "


def error(folder: Path, text: str, name: str = "my file.yaml") -> ConfigError:
    path = folder / name
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_job(str(path), f"conf/{name}", None, ())
    return caught.value


@pytest.mark.parametrize(
    ("text", "name", "command"),
    [
        (
            "base_model: x\ndatasets:\n  - path: y\nmicro_batch_size: 1\n",
            "an axolotl config",
            RUN + "axolotl train 'conf/my file.yaml'",
        ),
        (
            "model_name_or_path: x\nstage: sft\ndo_train: true\nfinetuning_type: lora\n",
            "a LLaMA-Factory config",
            RUN + "llamafactory-cli train 'conf/my file.yaml'",
        ),
        (
            "model_name_or_path: x\nadapter_name_or_path: y\ntemplate: z\nexport_dir: o\n",
            "a LLaMA-Factory config",
            RUN + "llamafactory-cli export 'conf/my file.yaml'",
        ),
        (
            "model_name_or_path: x\ndataset_name: y\nlearning_rate: 1e-5\n",
            "a TRL config",
            RUN + "trl sft --config 'conf/my file.yaml'",
        ),
        (
            "model_name_or_path: x\ndataset_name: y\nbeta: 0.1\n",
            "a TRL config",
            RUN + "trl dpo --config 'conf/my file.yaml'",
        ),
        (
            "model_name_or_path: x\nbeta: 0.1\nnum_generations: 8\n",
            "a TRL config",
            RUN + "trl grpo --config 'conf/my file.yaml'",
        ),
        (
            "model: x\ntuner_type: lora\ndataset: y\n",
            "an ms-swift config",
            RUN + "swift sft 'conf/my file.yaml'",
        ),
        (
            "compute_environment: LOCAL_MACHINE\nnum_processes: 2\n",
            "a config of accelerate",
            RUN + "accelerate launch --config_file 'conf/my file.yaml' train.py",
        ),
        (
            "zero_optimization:\n  stage: 3\ntrain_batch_size: auto\n",
            "a DeepSpeed config",
            RUN + "accelerate launch --use_deepspeed"
            " --deepspeed_config_file 'conf/my file.yaml' train.py",
        ),
        (
            "defaults:\n  - model: x\ntrainer:\n  epochs: 1\n",
            "a config of Hydra",
            RUN + "python train.py --config-dir conf --config-name 'my file'",
        ),
        (
            "model:\n  _component_: torchtune.models.x\ntokenizer:\n  path: y\n",
            "a torchtune config",
            RUN + "tune run RECIPE --config 'conf/my file.yaml'",
        ),
        (
            "trainer:\n  devices: 2\nmodel:\n  class_path: a.B\n  init_args: {x: 1}\n",
            "a config of Lightning's CLI",
            RUN + "python train.py fit --config 'conf/my file.yaml'",
        ),
        (
            "version: '3'\nservices:\n  train:\n    image: x\n    <<: *y\n",
            "a Docker Compose file",
            "docker compose -f 'conf/my file.yaml' up",
        ),
        (
            "apiVersion: v1\nkind: Pod\n---\napiVersion: v1\nkind: Service\n",
            "a Kubernetes manifest",
            "kubectl apply -f 'conf/my file.yaml'",
        ),
        (
            "resources:\n  accelerators: A100:8\nrun: |\n  torchrun train.py\n",
            "a SkyPilot task",
            "sky launch 'conf/my file.yaml'",
        ),
        (
            "output_dir: x\nper_device_train_batch_size: 1\n",
            "a config of a Hugging Face Trainer",
            RUN + "torchrun --nproc_per_node 1 train.py 'conf/my file.yaml'",
        ),
    ],
)
def test_a_file_of_another_program_is_named_with_its_command(
    tmp_path: Path, text: str, name: str, command: str
) -> None:
    refused = error(tmp_path, text)
    assert refused.message == f"this looks like {name}, and is no job file"
    assert f"`{command}`" in str(refused.hint)


def test_json_is_recognised_whatever_its_indentation_is(tmp_path: Path) -> None:
    refused = error(tmp_path, '{\n\t"zero_optimization": {"stage": 2}\n}', "ds.json")
    assert "a DeepSpeed config" in refused.message


def test_a_file_with_foreign_keys_only_is_no_job_file(tmp_path: Path) -> None:
    refused = error(tmp_path, "model: x\nlr: 1e-3\nepochs: 3\n", "train.yaml")
    assert refused.message == "this is no job file: it has neither `launcher` nor `script`"
    assert "python train.py --config conf/train.yaml" in str(refused.hint)


@pytest.mark.parametrize(
    "text",
    [
        "launcher: torchrun\nscript: t.py\nmodel_name_or_path: x\ndataset_name: y\n",
        "script: t.py\ndefaults: [x]\n",
        "proceses: 2\n",
        "gpus: 2\nenv: {A: 1}\nsetpu: x\n",
    ],
)
def test_a_job_file_with_a_mistake_is_told_the_mistake(tmp_path: Path, text: str) -> None:
    assert error(tmp_path, text).message.startswith("unknown key ")


def test_an_error_of_yaml_in_a_job_file_stays(tmp_path: Path) -> None:
    assert "tab" in str(error(tmp_path, "launcher: torchrun\n\tscript: t.py\n").hint)
