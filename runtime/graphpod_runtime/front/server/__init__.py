"""Sockets to ASGI: one HTTP server, its connections, and a thread for one of its own."""
