"""What front and engine process say to each other: messages, counters, the report of a start. No torch."""
