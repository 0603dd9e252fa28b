"""Graphs of a phase: captured once at the start, and checked against the code they hold."""
