"""The commands below `hosts`."""
