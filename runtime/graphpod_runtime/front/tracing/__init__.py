"""W3C trace context in, OpenTelemetry spans out. Nothing of OpenTelemetry is imported while tracing is off."""
