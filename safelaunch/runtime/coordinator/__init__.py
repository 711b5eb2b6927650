"""The launcher of a run with parts, and each part with a supervisor of its own below it."""
