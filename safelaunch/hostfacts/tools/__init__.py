"""Parsers for the output of nvidia-smi, rocm-smi, npu-smi and collect_env."""
