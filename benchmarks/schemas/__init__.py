"""JSON schemas of other people through the engine: every one is refused with a reason, or its answers are valid."""
