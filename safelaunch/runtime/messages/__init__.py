"""Messages between the supervisors of one run: connections, and the proof of who sends them."""
