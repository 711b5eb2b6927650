"""What follows the end of a run: commands, an upload, and the shutdown of a rented machine."""
