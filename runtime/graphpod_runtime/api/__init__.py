"""The engine as a library: `Engine` and `AsyncEngine`, without a server. Importing this package imports no torch."""
