"""The blocks of a job or of a host that say what is asked of an engine."""
