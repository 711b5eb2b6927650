"""Starts a bound run on the machine that it is called on: the only program that starts runs."""
