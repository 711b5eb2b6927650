"""`python -m safelaunch` is the command line."""

from safelaunch.cli.main import program

program()
