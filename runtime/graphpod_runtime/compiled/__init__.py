"""Functions compiled once and kept on disk: a start loads what an earlier one compiled."""
