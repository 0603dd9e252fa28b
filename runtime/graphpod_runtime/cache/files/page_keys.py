"""Names of pages in files: a hash of all that their bytes depend on.

That is the engine's identity (model, weights, scales, layout), the namespace, and the tokens from the first one to the
end of the page. Pages of different namespaces have different keys, so no request sees what another salt has written.
"""

from array import array
from collections.abc import Iterator
from hashlib import sha256

from graphpod_runtime.cache.radix_node import Namespace


def page_keys(identity: bytes, namespace: Namespace, tokens: list[int], page_size: int, first: int) -> Iterator[bytes]:
    """Keys of the whole pages of `tokens` from page `first` on, each made when it is asked for."""
    state = sha256(identity)
    for word in namespace:
        written = word.encode("utf-8", "surrogatepass")
        state.update(len(written).to_bytes(8, "little") + written)
    text = memoryview(array("q", tokens[: len(tokens) // page_size * page_size]).tobytes())
    size = 8 * page_size
    state.update(text[: first * size])
    for start in range(first * size, len(text), size):
        state.update(text[start : start + size])
        yield state.digest()
