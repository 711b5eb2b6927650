"""Parts of a job in its plan."""
