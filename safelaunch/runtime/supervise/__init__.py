"""The supervisor of one node of a run."""
