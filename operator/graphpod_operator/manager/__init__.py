"""The process: its parts put together, its tasks, probes, signals and ports."""
