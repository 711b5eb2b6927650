"""Slurm: the batch script of a plan, and the line that submits it."""
