"""The OpenAI API: protocol, routes, errors."""
