"""Which options a program takes, read from its source."""
