"""Rotary positions: the tables that turn queries and keys, and how they reach beyond the length of pretraining."""
