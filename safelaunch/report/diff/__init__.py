"""Compares two runs."""
