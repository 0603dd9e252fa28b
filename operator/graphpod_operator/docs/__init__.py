"""The reference pages, made from the tables in the code."""
