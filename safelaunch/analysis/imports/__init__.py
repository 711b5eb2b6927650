"""Which modules a program imports, and where they are found."""
