"""Checks of GPUs, memory, disks and the links between GPUs."""
