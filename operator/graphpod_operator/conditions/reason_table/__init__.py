"""The reasons of conditions and what each says: a table for each condition."""
