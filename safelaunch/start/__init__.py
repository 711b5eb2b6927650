"""Starts a bound plan on this machine."""
