"""Where the seconds of a start go: stages of two starts, and call trees of the second."""
