"""`make demo`: from nothing to an answer on a real cluster, one stage per line."""
