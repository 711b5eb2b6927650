"""What tests share, some of it with the bench: helpers, fakes, generators of input, paths."""

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
DATA = REPOSITORY / "tests" / "data"
