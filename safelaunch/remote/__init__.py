"""Runs on other machines: an agent there answers over one SSH connection."""
