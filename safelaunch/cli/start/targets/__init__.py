"""Where a plan is started: on this machine, on hosts, or by an engine."""
