"""Evidence of a hang: stacks, kernel, flight recorder."""
