"""What only the caller of a script knows, as variables of its jobs."""
