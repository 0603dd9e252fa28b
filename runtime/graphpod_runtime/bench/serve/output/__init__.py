"""A report as tables and as a picture."""
