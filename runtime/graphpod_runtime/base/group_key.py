"""The key that the machines of one engine share, and the proof of a machine that has it."""

import hashlib
import hmac
import secrets

GROUP_KEY = "GRAPHPOD_GROUP_KEY"
"""Environment variable: the key, the same on all machines. Without one, whoever reaches the ports takes part."""
LEAST, MOST = 16, 256
"""Characters of a key."""


class KeyInvalid(ValueError):
    """A key that is none; its words do not show it."""


def checked(key: str) -> str:
    """The key; empty for none. KeyInvalid for one that is too short to be a secret, too long, or no text."""
    if key and not LEAST <= len(key) <= MOST:
        raise KeyInvalid(f"{GROUP_KEY} has {len(key)} characters; set {LEAST} to {MOST}")
    if any("\ud800" <= one <= "\udfff" for one in key):
        raise KeyInvalid(f"{GROUP_KEY} is not UTF-8; set {LEAST} to {MOST} characters of ASCII")
    return key


def nonce() -> str:
    """A text that was never used before."""
    return secrets.token_hex(32)


def derived(key: str, *words: str) -> bytes:
    """32 bytes that follow from the key and all of `words`, and do not show the key."""
    text = "".join(f"{len(word)}:{word}" for word in words)
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()


def proof(key: str, *words: str) -> str:
    """What only who has the key can say about `words`; empty without a key."""
    return derived(key, "proof", *words).hex() if key else ""


def proves(said: str, key: str, *words: str) -> bool:
    """Whether `said` is the proof; always, without a key."""
    return not key or hmac.compare_digest(said.encode(), proof(key, *words).encode())
