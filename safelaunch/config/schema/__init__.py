"""The declared keys of job, profile and hosts files, and their types."""
