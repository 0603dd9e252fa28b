"""Weights from their source to the device at each start, without a disk between."""
