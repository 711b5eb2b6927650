"""Strict YAML with origins."""
