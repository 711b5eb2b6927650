"""Known failures, and what to do about each."""
