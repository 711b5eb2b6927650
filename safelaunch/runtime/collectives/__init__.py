"""What ranks were doing together: dumps of torch's flight recorder, and NCCL's own log."""
