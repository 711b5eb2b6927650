"""The cards (GPUs, NPUs) of a machine: what uses them, and whose turn it is."""
