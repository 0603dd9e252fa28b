"""Applied: one write at a time, with pauses where another writer or the server is against it."""
