"""One module for each command-line parser whose options can be read from a program's text."""
