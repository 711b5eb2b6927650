"""Set-ups that are broken on purpose: what `check` must find in each."""
