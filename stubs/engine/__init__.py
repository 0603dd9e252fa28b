"""A stub of the engine: `python3 -m stubs.engine serve --config engine.json`."""
