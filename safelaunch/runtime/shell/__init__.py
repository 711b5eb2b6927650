"""Shell scripts as far as their text shows what they do."""
