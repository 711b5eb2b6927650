"""Ray: its jobs interface, what it says about jobs, and what that means for a run."""

NAME = "ray"  # as run.json and `--on` have it
