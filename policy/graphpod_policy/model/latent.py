"""Latent attention (MLA): what a config.json says of its widths.

A token's keys and values of all heads are projections of one small vector, its *latent*. Next to it stands a part of
the key that has rotary positions, and that all heads share. A KV cache of the latent and that part is enough: a query
is multiplied by the keys' projection instead, and the result by the values'.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

NORM_EPS = 1e-6
"""Of the norms of latents, whatever the model's own norms have."""
MOST_WIDTH = 1 << 16
"""Of any part: more than any model has."""


class Latent(NamedTuple):
    """Widths of one layer's attention."""

    query_rank: int
    """Of the latent that queries are projections of; 0: they are projections of the layer's input."""
    rank: int
    """Of the latent that keys and values are projections of."""
    plain: int
    """Of the part of a head's query and key without positions."""
    rotated: int
    """Of the part with positions. All heads share that of the key."""
    value: int
    """Of a head's value."""

    @property
    def cached(self) -> int:
        """Elements of a token in the KV cache of one layer."""
        return self.rank + self.rotated

    @property
    def query(self) -> int:
        """Width of a head's query and key."""
        return self.plain + self.rotated

    @property
    def shared(self) -> int:
        """Rows of one layer's matrices that belong to no head: those that make the latents and the part of a key."""
        return self.cached + self.query_rank

    def weights(self, hidden: int, heads: int) -> int:
        """Of one layer's matrices."""
        queries, heads_kv = heads * self.query, heads * (self.plain + self.value)
        read = self.cached + (self.query_rank or queries)
        return hidden * (read + heads * self.value) + self.query_rank * queries + self.rank * heads_kv


def latent_of(config: Mapping[str, Any]) -> Latent:
    """What `config` declares. KeyError, TypeError or ValueError for a field that is missing or has no usable value."""
    widths = {
        name: int(config[name]) for name in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    }
    for name, width in widths.items():
        if not 0 < width <= MOST_WIDTH:
            raise ValueError(f"{name} {width}; a width is 1 to {MOST_WIDTH}")
    rank, plain, rotated, value = widths.values()
    if rotated % 2:
        raise ValueError(f"qk_rope_head_dim {rotated}; rotary positions turn pairs")
    query_rank = int(config.get("q_lora_rank", 0))
    if "q_lora_rank" in config and not 0 < query_rank <= MOST_WIDTH:
        raise ValueError(f"q_lora_rank {query_rank}; a width is 1 to {MOST_WIDTH}")
    heads = int(config["num_attention_heads"])
    if (kv_heads := int(config.get("num_key_value_heads", heads))) != heads:
        raise ValueError(f"num_key_value_heads {kv_heads}; with latent attention it is num_attention_heads, {heads}")
    return Latent(query_rank, rank, plain, rotated, value)
