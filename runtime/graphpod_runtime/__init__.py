"""graphpod's inference engine: front process, engine process, graphs, models."""
