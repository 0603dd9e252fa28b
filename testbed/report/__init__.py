"""What `python3 -m testbed` prints about testbeds, as values first and then as text."""
