"""A package, so that the map of what a change touches knows its modules."""
