"""The Responses API: items in, items out, and a bounded store of answers in memory."""
