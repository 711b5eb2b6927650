"""Runs the supervisor of a node in a container: what docker and podman are asked, and their end."""
