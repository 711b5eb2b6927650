"""The record of runs, here and on hosts."""
