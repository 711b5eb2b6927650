"""The command `lint`."""
