"""From nothing to an answer on a real cluster: `python -m demo up`, one stage per line."""
