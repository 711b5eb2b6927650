"""`python -m safelaunch` is the command line."""

from safelaunch.cli import main

main()
