"""The commands push and pull."""
