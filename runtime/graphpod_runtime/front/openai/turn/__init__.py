"""Pieces of answers as parts of assistants' turns: what chats, responses and messages are written from."""
