"""Reads libraries without loading them: names, versions, and what they were built for."""
