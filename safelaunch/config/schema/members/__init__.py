"""Keys of what runs beside a job."""
