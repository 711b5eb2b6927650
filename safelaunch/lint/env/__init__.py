"""Rules about environment variables."""
