"""Several processes as one engine: the first rank schedules, the others launch what it launches."""
