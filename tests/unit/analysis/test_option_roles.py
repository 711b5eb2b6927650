from __future__ import annotations

import pytest

from safelaunch.analysis import option_roles
from safelaunch.analysis.option_roles import NamedArgument
from safelaunch.model import Args


def args(text: str) -> Args:
    return Args(words=tuple(text.split()))


def pairs(result: list[NamedArgument]) -> list[tuple[str, str]]:
    return [(item.option, item.value) for item in result]


def test_every_form_of_an_option_is_read() -> None:
    text = "ppo --a 1 --b=2 -c 3 c.d=4 +e=5 --f -1e-5 --g --h x y --i"
    assert pairs(list(option_roles.named_arguments(args(text)))) == [
        ("", "ppo"),
        ("a", "1"),
        ("b", "2"),
        ("c", "3"),
        ("c.d", "4"),
        ("e", "5"),
        ("f", "-1e-5"),
        ("g", "true"),
        ("h", "x"),
        ("h", "y"),
        ("i", "true"),
    ]


def test_a_switch_before_an_override_is_not_lost() -> None:
    result = pairs(list(option_roles.named_arguments(args("--resume trainer.steps=3"))))
    assert result == [("resume", "trainer.steps=3"), ("trainer.steps", "3")]


def test_a_mapping_is_read_as_it_stands() -> None:
    arguments = Args(options=(("a", ("1", "2")), ("b", False), ("+c.d", ("x",))), is_mapping=True)
    assert pairs(list(option_roles.named_arguments(arguments))) == [
        ("a", "1"),
        ("a", "2"),
        ("b", "false"),
        ("c.d", "x"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--config configs/a.yaml", [("config", "configs/a.yaml")]),
        ("conf/x.JSON --deepspeed=ds.json", [("", "conf/x.JSON"), ("deepspeed", "ds.json")]),
        ("--train_data a.json --output_file r.json --prompt_data p.json", []),
        ("--dst a.json --answer-file b.json --pred_path c.json --log.file d.json", []),
        (
            "--rollout_config a.yaml --dialog b.json",
            [("rollout_config", "a.yaml"), ("dialog", "b.json")],
        ),
        ("--config https://example.org/a.yaml --lr 1", []),
        ("--config-name=big.yaml a=2", []),
        ("--config-name big.yaml --cn x.yaml", []),
        ("--train_file a.json --test_file b.json", []),
        ("-c a.json+b.json --config a.yaml,b.yaml", []),
        ("--repo_id org/data --filename a.json --config.file_name b.yaml", []),
        ("--filename conf/a.json", [("filename", "conf/a.json")]),
        ("a.json b.json c.yaml", [("", "a.json"), ("", "c.yaml")]),
    ],
)
def test_configuration_files(text: str, expected: list[tuple[str, str]]) -> None:
    assert pairs(option_roles.config_files(args(text))) == expected


@pytest.mark.parametrize(
    "word", ["Qwen/Qwen2.5-7B", "openai/gsm8k", "meta-llama/Llama-3.1-8B", "a/b_c"]
)
def test_a_hub_id_is_known(word: str) -> None:
    assert option_roles.looks_like_hub_id(word)


@pytest.mark.parametrize(
    "word",
    [
        *("gpt2", "./a/b", "/a/b", "a/b/c", "~/a", "data/train", "checkpoints/step1", "a/b.json"),
        *("org/model.gguf", "a/b/", "", "a b/c", "../a", "models/x", "a/" + "b" * 96, "a/b\n"),
    ],
)
def test_a_path_is_no_hub_id(word: str) -> None:
    assert not option_roles.looks_like_hub_id(word)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--model_name_or_path a/b --lr 1", ["a/b"]),
        ("--pretrain /m --reward_pretrain r --critic_pretrain none", ["/m", "r"]),
        ("actor.path=x +ref.path=y actor_rollout_ref.model.path=z", ["x", "y", "z"]),
        ("--base-model m", ["m"]),
        ("--model_type llama --remote_rm_url u", []),
    ],
)
def test_models(text: str, expected: list[str]) -> None:
    assert [result.value for result in option_roles.model_paths(args(text))] == expected


def test_hub_ids_are_those_of_models_and_datasets() -> None:
    text = "--model Qwen/Qwen2 --dataset_name openai/gsm8k --output_dir a/b --tokenizer ./t/u"
    assert pairs(option_roles.hub_ids(args(text))) == [
        ("model", "Qwen/Qwen2"),
        ("dataset_name", "openai/gsm8k"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--output_dir out --logging_dir=log", ["out", "log"]),
        ("hydra.run.dir=/h trainer.default_local_dir=c", ["/h", "c"]),
        ("experiment_name=a trial_name=b cluster.fileroot=/s", ["/s"]),
        ("--save_path s --ckpt_path c", ["s", "c"]),
        ("--ckpt_path last.ckpt --output_dir s3://x", []),
    ],
)
def test_outputs(text: str, expected: list[str]) -> None:
    assert [result.value for result in option_roles.output_folders(args(text), {})] == expected


def test_an_output_of_the_environment_says_so() -> None:
    assert option_roles.output_folders(args(""), {"WANDB_DIR": "w", "HOME": "h"}) == [
        NamedArgument("WANDB_DIR", "w", "env")
    ]


def test_names_of_an_experiment() -> None:
    text = "--config a.yaml experiment_name=x trial_name=y trainer.project_name=z"
    assert [result.value for result in option_roles.experiment(args(text))] == ["x", "y", "z"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--resume_from_checkpoint out/checkpoint-5", ["out/checkpoint-5"]),
        ("--resume_from_checkpoint True --load false", []),
        ("--load /c --ckpt_path /d", ["/c"]),
        ("--load_checkpoint --ckpt_path /d", ["/d"]),
        ("--ckpt_path last.ckpt", ["last.ckpt"]),
    ],
)
def test_resumes(text: str, expected: list[str]) -> None:
    assert [result.value for result in option_roles.resume_paths(args(text))] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--train_file data/a.jsonl --output_dir out", ["data/a.jsonl"]),
        ("--dataset ./d --dataset_name /data/x --dataset_path org/name", ["./d", "/data/x"]),
        ("--dataset d.jsonl#500", ["d.jsonl"]),
        ("--data_path /d/gpt3_text_document --train_data /d/x.parquet.zst", ["/d/x.parquet.zst"]),
        ("--data_path data/ --dataset a.json", []),
        ("--train_data_path corpus --eval_data_path a.json", []),
        ("--data_path org/name --eval_data_path a.json", ["a.json"]),
        ("--train_file a.json --train_data_dir d", []),
        ("--dataset_base_path d --train_file a.json", []),
        ("--dataset a.jsonl,b.jsonl --train_file data/*.json --prompt_data a.json:0.5", []),
        ("--train_file a.json --data_dir /data", []),
        ("--train_file /data/a.json --data_dir /data", ["/data/a.json"]),
        ("--dataset_path data/example --train_file a.json", []),
        ("--dataset_path data/example --train_file /d/a.json", ["/d/a.json"]),
        ("--dataset org/name --val_dataset a.json", ["a.json"]),
        ("--dataset d.json --train_file a.json", ["d.json", "a.json"]),
        ("--dataset AI-ModelScope/alpaca --dataset_name org/data.json5", []),
        ("data.train_files=/d/a.parquet data.val_files=['b.parquet']", ["/d/a.parquet"]),
        ("data.train_files= --validation_file s3://b/x.json", ["s3://b/x.json"]),
    ],
)
def test_data_files(text: str, expected: list[str]) -> None:
    assert [a.value for a in option_roles.data_files(args(text))] == [
        value for value in expected if "://" not in value
    ]
