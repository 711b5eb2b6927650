"""Reads programs of Hydra: the composed configuration, and overrides on the command line."""
