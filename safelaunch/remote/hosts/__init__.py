"""What machines are asked: their facts, the questions of checks, whether a host can be used."""
