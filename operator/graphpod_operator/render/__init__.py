"""Builders: from a service and its plan to the plain dicts of its children, in the server's normal form.

Normal form: quantities as the server writes them, defaults spelled out inside atomic structs, no empty map or list.
Then what the server keeps as our fields equals what we sent, and comparing is enough to know that nothing changed.
"""

from graphpod_operator.render.owner import Owner

__all__ = ["Owner"]
