"""What a fetch shows: a port, lines of the log, the message that it leaves behind."""
