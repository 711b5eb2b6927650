"""What a job file says of what runs beside its job."""
