"""Where the tensors of a checkpoint go in latent attention."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphpod_runtime.base.progress import OnProgress, ignore_progress
from graphpod_runtime.models.attention.latent_weights import LatentOut, LatentQkv
from graphpod_runtime.models.parts import Cuts
from graphpod_runtime.models.tensor_destination import Destination, Divided, Ordered, Target


def latent_targets(qkv: LatentQkv, out: LatentOut, cuts: Cuts) -> Mapping[str, Destination]:
    """Of one layer's matrices, behind the layer's name. A rank has `cuts` of what belongs to heads, and all of what
    makes the latents and the part of a key that heads share.

    A rotation here turns an element and the one half of the part further on, in checkpoints neighbours: rows of queries
    and of the key's part are put in order, as in `decoder_targets`.
    """
    latent, heads = qkv.latent, qkv.heads
    first, cached = qkv.read_rows
    turned = torch.cat((torch.arange(0, latent.rotated, 2), torch.arange(1, latent.rotated, 2)))
    of_head = torch.cat((torch.arange(latent.plain), latent.plain + turned))
    of_queries = (of_head + latent.query * torch.arange(heads)[:, None]).flatten()
    of_key = torch.cat((torch.arange(latent.rank), latent.rank + turned))
    targets: dict[str, Destination] = {
        "self_attn.kv_a_proj_with_mqa.weight": Ordered(Target(qkv.read, first, cached), of_key),
        "self_attn.kv_b_proj.weight": Divided(KeysAndValues(qkv.keys, out.values), cuts.rows),
        "self_attn.o_proj.weight": Target(out.matrix, 0, len(out.matrix), cut=cuts.columns),
    }
    if qkv.queries is None:
        targets["self_attn.q_proj.weight"] = Divided(Ordered(Target(qkv.read, 0, first), of_queries), cuts.rows)
    else:
        targets["self_attn.q_a_proj.weight"] = Target(qkv.read, 0, first)
        queries = Ordered(Target(qkv.queries, 0, len(qkv.queries)), of_queries)
        targets["self_attn.q_b_proj.weight"] = Divided(queries, cuts.rows)
    if qkv.bias is not None:
        targets["self_attn.kv_a_proj_with_mqa.bias"] = Ordered(Target(qkv.bias, first, cached), of_key)
        if qkv.queries is not None:
            targets["self_attn.q_a_proj.bias"] = Target(qkv.bias, 0, first)
    if out.bias is not None:
        targets["self_attn.o_proj.bias"] = Target(out.bias, 0, len(out.bias))
    return targets


@dataclass(frozen=True, slots=True)
class KeysAndValues:
    """Of each head the rows that make its key, then those that make its value, in one matrix of a checkpoint."""

    keys: Tensor
    values: Tensor

    @property
    def shapes(self) -> Sequence[Sequence[int]]:
        heads, plain, rank = self.keys.shape
        return ((heads * (plain + self.values.shape[1]), rank),)

    def fill(self, tensor: Tensor, read: OnProgress = ignore_progress) -> None:
        heads, plain, _ = self.keys.shape
        for head, rows in enumerate(tensor.view(heads, -1, tensor.shape[1])):
            Target(self.keys.data[head], 0, plain).fill(rows[:plain], read)
            Target(self.values.data[head], 0, self.values.shape[1]).fill(rows[plain:], read)
