"""Starts ranks without a launcher: on the machine of the job, by its own interpreter."""
