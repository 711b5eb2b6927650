"""The code that a run is launched with, and a rerun starts again."""
