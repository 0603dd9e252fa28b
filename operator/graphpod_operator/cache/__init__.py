"""Seen: the part of each watched object that decisions need, and the store of all objects. Pure."""
