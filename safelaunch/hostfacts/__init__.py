"""What the tools of a host say about its cards and itself, read from their text.

Pure functions: nothing is run, opened or asked here. `runtime/facts.py` fetches the texts, on the
host; a text that cannot be read is no fact, and never an exception.
"""
