"""The attempts of a node's run: processes, logs, observation, outcome, and what follows each."""
