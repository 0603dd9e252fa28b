"""A call of attention by one of transformers' modules, as our attention understands it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from graphpod_runtime.models.by_transformers.unsupported import FamilyUnsupported, Lack

IGNORED = frozenset(
    {
        "cache_position",
        "dropout",
        "is_causal",
        "layer_idx",
        "layer_type",
        "logits_to_keep",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "past_key_values",
        "position_embeddings",
        "position_ids",
        "return_dict",
        "scaling",
        "sliding_window",
        "softcap",
        "s_aux",
        "use_cache",
    }
)
"""Arguments that change nothing: the module has used them, or they are read below. Window and causality are those of
the mask, as for transformers' own eager attention."""


SPARSE, REACH = "indices", "index_topk"
"""An argument that names the keys that each query sees, and the field of how many it names: a text that has no more
tokens is seen whole."""


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """What a layer attends with. Widths are of one head; `group` is queries for each key."""

    kv_heads: int
    group: int
    key_width: int
    value_width: int
    scale: float
    window: int | None
    cap: float | None
    sinks: Tensor | None
    """[heads]"""

    @classmethod
    def of(
        cls,
        module: nn.Module,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        window: int | None,
        given: Mapping[str, Any],
    ) -> "AttentionCall":
        """That of `module` with these arguments; q, k and v are [1, heads, tokens, width]. FamilyUnsupported names what
        is not built."""
        name = type(module).__name__
        known = IGNORED | ({SPARSE} if hasattr(getattr(module, "config", None), REACH) else frozenset())
        if unknown := sorted(key for key, value in given.items() if key not in known and _says_something(value)):
            raise FamilyUnsupported(
                Lack.Attention, f"{name} calls attention with {', '.join(unknown)}, which is not built"
            )
        if k.shape[2] != q.shape[2] or q.shape[0] != 1:
            raise FamilyUnsupported(
                Lack.Attention,
                f"{name} attends from {list(q.shape)} to {list(k.shape)}: only a layer's own tokens are built",
            )
        heads, kv_heads = q.shape[1], k.shape[1]
        if heads % kv_heads or v.shape[1] != kv_heads or q.shape[3] != k.shape[3]:
            raise FamilyUnsupported(
                Lack.Attention, f"{name} attends with heads {list(q.shape)}, {list(k.shape)}, {list(v.shape)}"
            )
        cap, scale = given.get("softcap"), given.get("scaling")
        if scale is not None and not float(scale) > 0:
            raise FamilyUnsupported(Lack.Attention, f"{name} multiplies scores by {float(scale):g}, which is not built")
        return cls(
            kv_heads=kv_heads,
            group=heads // kv_heads,
            key_width=q.shape[3],
            value_width=v.shape[3],
            scale=float(scale) if scale is not None else q.shape[3] ** -0.5,
            window=window,
            cap=float(cap) if cap else None,
            sinks=given.get("s_aux"),
        )


def _says_something(value: object) -> bool:
    return value is not None and value is not False
