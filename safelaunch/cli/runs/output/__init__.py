"""How the bytes of a log reach a terminal or a pipe."""
