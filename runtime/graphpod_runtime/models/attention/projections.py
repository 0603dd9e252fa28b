"""The matrices and norms of a layer's attention."""

from typing import NamedTuple

import torch

from graphpod_policy.model.architectures import HeadNorm
from graphpod_policy.model.fp8_scheme import PARTS
from graphpod_policy.model.latent import NORM_EPS
from graphpod_runtime.base.shapes import ModelShape
from graphpod_runtime.models.attention.latent_weights import LatentOut, LatentQkv
from graphpod_runtime.models.norm import RowNorm
from graphpod_runtime.models.weights.linear import Linear


class Projections(NamedTuple):
    """Of one layer. With a latent, the norms are those of the queries' latent, where there is one, and of the keys'."""

    qkv: Linear | LatentQkv
    norm_q: RowNorm | None
    norm_k: RowNorm | None
    out: Linear | LatentOut


def projections(shape: ModelShape, layer: int, dtype: torch.dtype) -> Projections:
    """Unset ones of `layer`."""
    if (latent := shape.latent) is not None:

        def norm(rank: int) -> RowNorm | None:
            return RowNorm(shape.norm, (rank,), NORM_EPS, dtype) if rank else None

        qkv = LatentQkv(latent, shape.hidden, shape.heads, dtype, bias=shape.qkv_bias)
        out = LatentOut(latent, shape.hidden, shape.heads, dtype, bias=shape.out_bias)
        return Projections(qkv, norm(latent.query_rank), norm(latent.rank), out)
    heads = tuple(count * shape.head_dim for count in (shape.heads, shape.kv_heads, shape.kv_heads))
    into, out_of = (shape.scheme_of(layer, parts[0]) for parts in PARTS[:2])
    return Projections(
        Linear(shape.hidden, heads, dtype, into, bias=shape.qkv_bias),
        _head_norm(shape, shape.heads, dtype),
        _head_norm(shape, shape.kv_heads, dtype),
        Linear(heads[0], (shape.hidden,), dtype, out_of, bias=shape.out_bias),
    )


def _head_norm(shape: ModelShape, heads: int, dtype: torch.dtype) -> RowNorm | None:
    """Of so many heads."""
    width = shape.head_dim
    widths = {HeadNorm.Each: (width,), HeadNorm.All: (heads * width,), HeadNorm.Own: (heads, width)}
    return None if shape.qk_norm is None else RowNorm(shape.norm, widths[shape.qk_norm], shape.norm_eps, dtype)
