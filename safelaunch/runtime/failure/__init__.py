"""Why an attempt failed: the first rank, its exception or signal, its class."""
