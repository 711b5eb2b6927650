"""Shell scripts as job files: what a script would start, without running it, or as recorded."""
