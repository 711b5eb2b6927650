"""Slurm: its node lists, what it says about jobs, and what that means for a run."""
