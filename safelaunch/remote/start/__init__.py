"""Starts of plans on hosts: prepared, then started on each, or submitted to a login node."""
