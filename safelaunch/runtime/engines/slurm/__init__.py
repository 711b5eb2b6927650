"""Slurm: its node lists, what it says about jobs, and what that means for a run."""

NAME = "slurm"  # as run.json and `--on` have it
