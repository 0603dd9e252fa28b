"""Random bits that are a pure function of a key and a counter: Philox 4x32-10.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). Written in integer operations of
torch, so every device gives the same bits; the published known answers are in the tests.
"""

from torch import Tensor

WORD = 0xFFFFFFFF
"""32 bits."""
ROUNDS = 10
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85
"""What is added to the two words of the key after each round."""

Four = tuple[Tensor, Tensor, Tensor, Tensor]


def philox(counter: Four, key: tuple[Tensor, Tensor]) -> Four:
    """Four words for each counter and key. All are int64 that hold 32-bit words, of shapes that broadcast."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        high0, low0 = _product(c0, MULTIPLIERS[0])
        high1, low1 = _product(c2, MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    return c0, c1, c2, c3


def _product(word: Tensor, multiplier: int) -> tuple[Tensor, Tensor]:
    """High and low word of word × multiplier, which has 64 bits and would overflow int64.

    The multiplier is at least 2**31, so less 2**32 it is negative and its product with a word is above -2**63. What
    that leaves out, word × 2**32, belongs to the high word alone.
    """
    product = word * (multiplier - (1 << 32))
    return (product >> 32) + word, product & WORD
