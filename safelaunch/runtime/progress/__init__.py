"""Steps, checkpoints and metrics in what a job prints."""
