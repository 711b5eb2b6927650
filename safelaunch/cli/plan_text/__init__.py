"""A plan as text, for people and for CI: its commands, variables, scripts and their origins."""
