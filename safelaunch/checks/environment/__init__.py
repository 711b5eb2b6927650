"""Checks of the interpreter, its packages and the CUDA stack."""
