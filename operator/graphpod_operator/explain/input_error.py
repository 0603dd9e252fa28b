"""An argument or a file of `graphpod explain` that cannot be used."""

from __future__ import annotations


class InputError(ValueError):
    """An argument or a file that cannot be used; the message says what to write instead."""
