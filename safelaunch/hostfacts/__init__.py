"""Parses the output of tools into facts about a host and its GPUs.

Pure functions, except for `saved`: no command is run here. `runtime/facts` collects the texts on
the host; a text that cannot be parsed gives no fact, and never raises an exception.
"""
