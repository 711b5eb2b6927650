"""The commands that look at runs and end them."""
