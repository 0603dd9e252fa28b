"""Copies rows between buffers, and keeps the rows of seats on the device."""
