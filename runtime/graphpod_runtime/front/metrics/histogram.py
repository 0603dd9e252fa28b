"""Buckets of a histogram as Prometheus writes them."""

from collections.abc import Sequence

from prometheus_client.samples import Exemplar

Bucket = tuple[str, float] | tuple[str, float, Exemplar]
"""Upper bound, cumulative count, and one request of those that the bucket counts."""


def cumulative(
    bounds: Sequence[float], counts: Sequence[int], exemplars: Sequence[Exemplar | None] | None = None
) -> list[Bucket]:
    """Cumulative counts by upper bound, each with its exemplar. `counts` has one more than `bounds`: those above all
    of them.
    """
    total, buckets = 0, list[Bucket]()
    latest = exemplars or (None,) * len(counts)
    for bound, count, exemplar in zip((*bounds, float("inf")), counts, latest, strict=True):
        total += count
        plain = ("+Inf" if bound == float("inf") else str(float(bound)), float(total))
        buckets.append(plain if exemplar is None else (*plain, exemplar))
    return buckets
