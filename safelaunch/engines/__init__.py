"""What gives a job its machines, on the client's side: pure functions from a plan to a request."""
