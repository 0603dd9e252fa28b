"""Which sequences of a pipeline decode together: each stage computes another batch at the same time."""

from graphpod_runtime.engine.schedule.sequence import Sequence


def micro_batch(going_on: tuple[Sequence, ...], stages: int, flights: int) -> tuple[Sequence, ...]:
    """Of `going_on`, the next batch: its share of those with no token in flight, those first that have waited longest.
    Where all have one and a single pass is in flight, a share runs ahead of it, but for those with a grammar: what
    chooses their tokens must not be launched before the token in flight has landed. It may be empty."""
    share = -(-len(going_on) // stages)
    ready = sorted((one for one in going_on if not one.in_flight), key=lambda one: one.decoded_at)
    if not ready:
        return tuple(one for one in going_on if one.grammar is None)[:share] if flights <= 1 else ()
    return tuple(ready[:share])
