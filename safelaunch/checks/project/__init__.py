"""Checks of the job's script, inputs, outputs and numbers."""
