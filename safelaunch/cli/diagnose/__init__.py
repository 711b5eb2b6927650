"""The commands diagnose, report and diff."""
