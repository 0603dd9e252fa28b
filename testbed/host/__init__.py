"""What a testbed takes from the machine, notes on disk, and gives back: networks, mounts, cgroups."""
