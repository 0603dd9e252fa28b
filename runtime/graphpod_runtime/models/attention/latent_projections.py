"""Latent attention (MLA): what comes before scores, for heads that share one key, which is their value, too.

A head's key is a projection of a token's latent next to a part with positions, which all heads share. A query times a
projected latent is the projected query times the latent. So queries go through the keys' projection, and the key of
all heads is the latent and that part: nothing in the KV cache is as wide as the heads together. Attention gives a sum
of such keys, whose latent goes through each head's projection of values (`kernels/latent_product.py`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphpod_policy.model.architectures import Norm
from graphpod_policy.model.latent import NORM_EPS, Latent
from graphpod_runtime.kernels.matrix_product import product
from graphpod_runtime.models.norm import NormTensors, normalised
from graphpod_runtime.models.rope.rope_tables import apply_rope
from graphpod_runtime.models.weights.product import Tensors


@dataclass(frozen=True, slots=True)
class LatentBefore:
    """As `Before`: x [tokens, hidden] -> q [tokens, heads, cached], k and v [tokens, 1, cached], which are the same.

    `norm_q` and `norm_k` are the weights of the latents' norms, tables [tokens, 1, rotated].
    """

    heads: int
    latent: Latent
    eps: float
    norm: Norm = Norm.Rms

    kv_heads = 1

    @property
    def head_dim(self) -> int:
        return self.latent.cached

    def __call__(
        self,
        x: Tensor,
        cosines: Tensor,
        sines: Tensor,
        norm: NormTensors | None,
        qkv: Tensors,
        bias: Tensor | None,
        norm_q: Tensor | None,
        norm_k: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        (read_by, queries, keys), latent = qkv, self.latent
        assert read_by is not None
        assert keys is not None
        assert norm_k is not None
        rows = x.shape[0]
        made = product(x if norm is None else normalised(self.norm, x, norm, self.eps), read_by, bias)
        q, shared, position = made.split((made.shape[1] - latent.cached, latent.rank, latent.rotated), dim=1)
        if queries is not None and norm_q is not None:
            q = product(normalised(self.norm, q, (norm_q,), NORM_EPS), queries)
        plain, rotated = q.view(rows, self.heads, latent.query).split((latent.plain, latent.rotated), dim=2)
        own = torch.bmm(plain.transpose(0, 1), keys).transpose(0, 1)
        q = torch.cat((own, apply_rope(rotated, cosines, sines)), dim=2)
        shared = normalised(self.norm, shared, (norm_k,), NORM_EPS)[:, None]
        k = torch.cat((shared, apply_rope(position[:, None], cosines, sines)), dim=2)
        return q, k, k
