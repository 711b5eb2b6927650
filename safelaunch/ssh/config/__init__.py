"""ssh_config: what `ssh NAME` would do."""
