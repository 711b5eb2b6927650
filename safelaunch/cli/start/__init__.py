"""The commands that start runs: run, remote, rerun, init."""
