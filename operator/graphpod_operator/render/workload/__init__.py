"""Rendered: the object that makes the pods of a service, and how it rolls them."""
