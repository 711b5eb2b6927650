"""Reads what is installed for an interpreter: what it requires, and what it was built for."""
