"""The facts of a machine, each within a time limit."""
