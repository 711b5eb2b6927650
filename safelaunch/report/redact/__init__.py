"""Replaces secrets and identities in texts."""
