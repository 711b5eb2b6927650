"""Logs of ranks: merged, capped, read."""
