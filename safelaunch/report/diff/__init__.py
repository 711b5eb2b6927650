"""How two runs differ."""
