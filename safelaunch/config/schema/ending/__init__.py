"""The keys about the end of a run, and about what ends it from outside."""
