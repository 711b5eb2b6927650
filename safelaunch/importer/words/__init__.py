"""Words of bash: what they are expanded to."""
