"""The sources, a module each: what they list and how their files are read."""
