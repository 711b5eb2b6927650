"""What a start asks of runs that were there before it."""
