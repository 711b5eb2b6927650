"""What went wrong, read off a log: signatures as data, and the engine that applies them."""
