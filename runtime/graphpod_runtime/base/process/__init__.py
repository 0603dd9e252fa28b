"""What a process has from the machine it runs on: processors, threads, signals."""
