"""Runs on hosts: their state, logs and files over SSH, and opening any recorded run."""
