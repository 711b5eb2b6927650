"""Rules about shell scripts."""
