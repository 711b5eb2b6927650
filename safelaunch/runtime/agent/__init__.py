"""What a client asks of a machine."""
