"""Reported: status, conditions and events, from what was planned, applied and observed."""
