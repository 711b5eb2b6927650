"""Which modules a program imports, and which files of the project shadow others."""
