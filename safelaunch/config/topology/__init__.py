"""Where a job runs: its nodes and processes, and what it asks of an engine for them."""
