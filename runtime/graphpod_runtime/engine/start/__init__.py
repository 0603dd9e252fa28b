"""From a configuration to a Ready engine."""
