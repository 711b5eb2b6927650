"""The importable part of the digits example: its data and its network."""
