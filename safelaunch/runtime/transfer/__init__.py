"""The host's side of sync, push and pull."""
