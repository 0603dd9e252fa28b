"""What the person who runs a benchmark sees: lines of progress, the table, the picture."""
