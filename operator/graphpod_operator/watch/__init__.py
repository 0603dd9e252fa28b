"""Seen: lists and watches that fill the cache, and the queue of keys that they feed."""
