"""Several answers to one prompt: their seeds."""

WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def seed_of(seed: int | None, choice: int) -> int | None:
    """The seed of one choice of a request, a signed 64-bit number: of the first the request's own, then a hash of both
    (splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014). None: a random one.
    """
    if seed is None or choice == 0:
        return seed
    mixed = (seed + choice * GOLDEN) & WORD
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & WORD
    mixed ^= mixed >> 31
    return mixed - (1 << 64) if mixed >> 63 else mixed
