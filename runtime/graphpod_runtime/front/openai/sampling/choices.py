"""Several answers to one prompt: their seeds, and what each of them repeats."""

from graphpod_runtime.front.requests.errors import invalid

MAX_REPEATED = 1 << 22
"""Tokens of prompts, or characters of a chat's last message, that all answers of a request repeat. One body holds no
more, so that a single answer to each prompt always fits.
"""
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


def refuse_repeated(size: int, answers: int, why: str) -> None:
    """ApiError 400 where so many answers would each repeat `size` tokens or characters; `why` is the field that asks
    for it.
    """
    if answers > 1 and (repeated := size * answers) > MAX_REPEATED:
        message = (
            f"{why} has each of {answers} answers repeat {size} tokens or characters of the prompt, {repeated} in all; "
            f"at most {MAX_REPEATED} fit one answer. Ask for fewer answers, or leave {why} out"
        )
        raise invalid(message, param="n")
