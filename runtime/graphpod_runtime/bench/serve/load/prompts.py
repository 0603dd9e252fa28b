"""Prompts by seed: token ids where the server takes them, else words of about one token each."""

from enum import StrEnum
from random import Random

RESERVED = 100
"""Ids below it are special tokens in many vocabularies."""
_COMMON = """
time year people way day man thing woman life child world school state family student group country problem hand part
place case week company system program question work government number night point home water room mother area money
story fact month lot right study book eye job word business issue side kind head house service friend father power hour
game line end member law car city community name president team minute idea kid body information back parent face
"""
WORDS = tuple(_COMMON.split())
"""Each is one token of most vocabularies."""


class Form(StrEnum):
    """What a prompt is made of."""

    Ids = "ids"
    Text = "text"


def ids(rng: Random, tokens: int, vocab: int) -> list[int]:
    """So many token ids of a vocabulary of `vocab`, special tokens spared where it is large enough."""
    first = min(RESERVED, vocab // 2)
    return rng.choices(range(first, vocab), k=tokens)


def words(rng: Random, tokens: int) -> str:
    """So many words."""
    return " ".join(rng.choices(WORDS, k=tokens))
