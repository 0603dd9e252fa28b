"""Whether a start can succeed, and the bytes that it takes, before any ran."""
