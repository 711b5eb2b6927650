"""Samples of GPUs, memory and kills while a job runs."""
