"""What the pods of a service are made of: the engine's container, its API key, where it may run, what the user adds."""
