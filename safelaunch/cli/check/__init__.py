"""The command `check`, and the quick checks of a start."""
