"""Arithmetic on vectors as the engine sends them: little-endian float32.

numpy is imported by the first request that needs it: most fronts never do.
"""

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from graphpod_runtime.front.openai.embeddings.reply import EmbeddingItem

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

_encoder = msgspec.json.Encoder()


def scaled(raw: bytes, dimensions: int | None, *, unit: bool) -> "NDArray[numpy.float32]":
    """The first `dimensions` numbers, divided by their length where it is to be 1."""
    import numpy

    vector = numpy.frombuffer(raw, dtype="<f4")[:dimensions]
    if not unit:
        return vector
    # In double precision: a large state's square may be more than single precision holds.
    double = vector.astype(numpy.float64)
    return (double / (float(numpy.linalg.norm(double)) or 1.0)).astype("<f4")


def cosines(first: Sequence[bytes], second: Sequence[bytes]) -> list[float]:
    """Of each pair, in double precision."""
    import numpy

    return [
        _cosine(*(numpy.frombuffer(raw, dtype="<f4").astype(numpy.float64) for raw in pair))
        for pair in zip(first, second, strict=True)
    ]


def _cosine(one: "NDArray[numpy.float64]", other: "NDArray[numpy.float64]") -> float:
    import numpy

    lengths = float(numpy.linalg.norm(one) * numpy.linalg.norm(other))
    return min(1.0, max(-1.0, float(numpy.dot(one, other)) / (lengths or 1.0)))


def encoded(raws: Sequence[bytes], dimensions: int | None, *, unit: bool, base64_: bool) -> list[msgspec.Raw]:
    """One item of the answer for each vector. Item by item, so that other threads run in between."""
    items = []
    for index, raw in enumerate(raws):
        vector = scaled(raw, dimensions, unit=unit)
        embedding = base64.b64encode(vector.tobytes()).decode() if base64_ else vector.tolist()
        items.append(msgspec.Raw(_encoder.encode(EmbeddingItem(index, embedding))))
    return items
