"""The time to a first token over HTTP, by part: a front, the wire and an engine, one request at a time."""
