"""Readers of what nvidia-smi, rocm-smi, npu-smi and collect_env print."""
