"""Other machines over SSH: what the settings say, and the connection that follows them."""
