"""Rules about YAML files."""
