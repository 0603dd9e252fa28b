"""The matrices of latent attention, as a layer's halves take them."""

import torch
from torch import nn

from graphpod_policy.model.latent import Latent
from graphpod_runtime.models.weights.product import Form, Tensors


def _unset(dtype: torch.dtype, *sizes: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(sizes, dtype=dtype), requires_grad=False)


class LatentQkv(nn.Module):
    """In the place of the matrix of queries, keys and values; is its own weight."""

    form = Form.Latent

    def __init__(self, latent: Latent, hidden: int, heads: int, dtype: torch.dtype, *, bias: bool) -> None:
        super().__init__()
        self.latent, self.heads = latent, heads
        queries = heads * latent.query
        self.read_rows = (latent.query_rank or queries, latent.cached)
        """Of `read`: queries or their latent, then what the KV cache gets."""
        self.read = _unset(dtype, sum(self.read_rows), hidden)
        self.queries = _unset(dtype, queries, latent.query_rank) if latent.query_rank else None
        self.keys = _unset(dtype, heads, latent.plain, latent.rank)
        # A checkpoint has none for queries that have no latent.
        self.bias = nn.Parameter(torch.zeros(sum(self.read_rows), dtype=dtype), requires_grad=False) if bias else None

    @property
    def weight(self) -> "LatentQkv":
        return self

    def tensors(self) -> Tensors:
        """Their addresses never change."""
        return self.read, self.queries, self.keys


class LatentOut(nn.Module):
    """In the place of the matrix of attention's result, which is a sum of latents; is its own weight."""

    form = Form.Latent

    def __init__(self, latent: Latent, hidden: int, heads: int, dtype: torch.dtype, *, bias: bool) -> None:
        super().__init__()
        self.values = _unset(dtype, heads, latent.value, latent.rank)
        self.matrix = _unset(dtype, hidden, heads * latent.value)
        self.bias = _unset(dtype, hidden) if bias else None

    @property
    def weight(self) -> "LatentOut":
        return self

    def tensors(self) -> Tensors:
        """Their addresses never change."""
        return self.values, self.matrix
