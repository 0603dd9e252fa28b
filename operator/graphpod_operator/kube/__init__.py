"""The API server: its kinds, the port that everybody writes through, the client behind it, the Lease."""
