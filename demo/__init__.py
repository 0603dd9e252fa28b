"""From nothing to an answer on a real cluster: `python3 -m demo up`, one stage per line."""
