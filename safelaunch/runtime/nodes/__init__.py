"""What a run of several nodes is, from what each of them is."""
