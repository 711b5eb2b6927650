"""Identities, ssh-agent and known hosts."""
