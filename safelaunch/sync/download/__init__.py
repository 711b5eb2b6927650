"""Files of a host that are copied to this machine: only what was asked for, and through no link."""
