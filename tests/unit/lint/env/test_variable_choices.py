"""Values of variables against the words that their readers accept."""

from __future__ import annotations

import pytest

from safelaunch.lint.env.choices import CHOICES, COMPARED
from safelaunch.lint.env.names import check

WRONG = [
    ("NCCL_ALGO", "Rinng", "Ring"),
    ("NCCL_ALGO", "Ring,Treee", "Tree"),
    ("NCCL_PROTO", "Simpel", "Simple"),
    ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "true", "=1"),
    ("WANDB_MODE", "offlin", "offline"),
    ("CUDA_DEVICE_ORDER", "PCI_BUS", "PCI_BUS_ID"),
    ("CUDA_DEVICE_ORDER", "pci_bus_id", "PCI_BUS_ID"),
    ("ACCELERATE_MIXED_PRECISION", "bfloat16", "bf16"),
    ("ACCELERATE_DYNAMO_BACKEND", "inducter", "inductor"),
    ("FSDP_SHARDING_STRATEGY", "FULL_SHARDD", "FULL_SHARD"),
    ("TORCH_LOGS", "+dynamo,graph_break", "graph_breaks"),
    ("TORCH_CUDA_ARCH_LIST", "8.0,9.0", "8.0;9.0"),
    ("TORCH_CUDA_ARCH_LIST", "sm_90", "9.0"),
    ("TORCH_DISTRIBUTED_DEBUG", "DETAILS", "DETAIL"),
    ("TRANSFORMERS_VERBOSITY", "INFO", "info"),
    ("VLLM_WORKER_MULTIPROC_METHOD", "spwan", "spawn"),
    ("VLLM_USE_V1", "true", "=1"),
    ("CUBLAS_WORKSPACE_CONFIG", "4096:8", ":4096:8"),
    ("PYTHONHASHSEED", "none", "0"),
    ("CUDA_VISIBLE_DEVICES", "0,0, 1,2", "=0,1,2"),
    ("OMP_NUM_THREADS", "auto", "8"),
    ("TOKENIZERS_PARALLELISM", "none", "false"),
    ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:true", "expandable_segments:True"),
    ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments=True", "expandable_segments:True"),
    ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segment:True", "expandable_segments"),
    ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:10", "128"),
    ("PYTORCH_ALLOC_CONF", "garbage_collection_threshold:80", "0.8"),
    ("PYTORCH_ALLOC_CONF", "expandable_segments:True;max_split_size_mb:64", "`,`"),
    ("PYTORCH_ALLOC_CONF", "roundup_power2_divisions:3", "4"),
]
RIGHT = [
    ("NCCL_ALGO", "^Ring"),
    ("NCCL_ALGO", "allreduce:tree,collnetdirect;broadcast:ring"),
    ("NCCL_PROTO", "ll,simple"),
    ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"),
    ("WANDB_MODE", "disabled"),
    ("ACCELERATE_MIXED_PRECISION", "BF16"),
    ("ACCELERATE_DYNAMO_BACKEND", "tvm"),
    ("FSDP_SHARDING_STRATEGY", "1"),
    ("TORCH_LOGS", "+dynamo,-inductor,transformers.trainer,my_module"),
    ("TORCH_CUDA_ARCH_LIST", "7.0 8.0;9.0a;12.0+PTX"),
    ("TORCH_CUDA_ARCH_LIST", "Ampere;Hopper"),
    ("TORCH_DISTRIBUTED_DEBUG", "detail"),
    ("VLLM_USE_V1", "0"),
    ("CUBLAS_WORKSPACE_CONFIG", ":4096:2:16:8"),
    ("PYTHONHASHSEED", "random"),
    ("OMP_NUM_THREADS", "4,2"),
    ("TOKENIZERS_PARALLELISM", "False"),
    ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True, max_split_size_mb:512"),
    ("PYTORCH_CUDA_ALLOC_CONF", "roundup_power2_divisions:[256:1,512:2,>:8]"),
    ("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync"),
    ("PYTORCH_CUDA_ALLOC_CONF", "a_key_of_next_year:7"),
]


@pytest.mark.parametrize(("name", "value", "cure"), WRONG)
def test_a_value_that_its_reader_refuses_has_a_cure(name: str, value: str, cure: str) -> None:
    (problem,) = check({name: value})
    assert problem.id == "env-value"
    assert cure in str(problem.fix)


@pytest.mark.parametrize(("name", "value"), RIGHT)
def test_a_value_that_its_reader_accepts_is_no_finding(name: str, value: str) -> None:
    assert [p for p in check({name: value}) if p.id == "env-value"] == []


@pytest.mark.parametrize("name", CHOICES)
def test_each_list_of_words_has_its_source(name: str) -> None:
    assert CHOICES[name].source


def test_the_names_compared_with_their_sources_have_entries() -> None:
    assert CHOICES.keys() >= COMPARED


def test_a_value_only_warns_where_the_words_were_not_compared_with_the_source() -> None:
    (problem,) = check({"WANDB_MODE": "offlin"})
    assert problem.severity == "warning"
