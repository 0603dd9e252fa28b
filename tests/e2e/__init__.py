"""A package, so that its clusters go when its last test has ended (pytest: scope package)."""
