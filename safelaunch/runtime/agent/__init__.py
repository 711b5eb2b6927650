"""Answers the requests of a client on the machine of a run."""
