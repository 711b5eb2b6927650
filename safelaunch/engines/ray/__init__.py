"""Ray: the request to the jobs interface, and the line of its driver."""
