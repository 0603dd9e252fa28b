"""Commands that a person runs on a machine without an operator."""
