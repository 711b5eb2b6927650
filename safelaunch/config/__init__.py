"""YAML files and flags to a resolved job: load, schema, profiles, hosts, resolve."""
