"""What is asked: lengths, arrivals and prompts, all pure functions of a seed."""
