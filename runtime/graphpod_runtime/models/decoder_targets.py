"""Where the tensors of a checkpoint go in our decoder, and in which order.

`apply_rope` turns element i of a head with element i + half of the whole head. Families turn neighbours, or a part of a
head. Queries and keys of one head may have any order, as long as it is the same: so the rows that make them are put in
order when weights are read, and nothing of it is left in a pass.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from graphpod_policy.model.architectures import HeadNorm, Norm
from graphpod_runtime.base.shapes import ModelShape
from graphpod_runtime.models.attention.latent_targets import latent_targets
from graphpod_runtime.models.attention.latent_weights import LatentOut, LatentQkv
from graphpod_runtime.models.decoder import Decoder, DecoderBody
from graphpod_runtime.models.layers.layer import DecoderLayer
from graphpod_runtime.models.mlp.experts import Experts
from graphpod_runtime.models.norm import RowNorm
from graphpod_runtime.models.parts import Cuts, cuts_of, expert_cuts
from graphpod_runtime.models.tensor_destination import WHOLE, Cut, Destination, Divided, Ordered, Stacked, Target
from graphpod_runtime.models.weights.linear import Linear

Destinations = dict[str, Destination]
"""By the tensors' names."""


def decoder_targets(model: Decoder) -> Destinations:
    """Of a whole model, or of what a rank has of it."""
    rows, stage = cuts_of(model.shape).rows, model.shape.stage
    targets = body_targets("model.layers.{}", model.body, 0 if stage is None else stage.first)
    if len(model.embedding):
        targets["model.embed_tokens.weight"] = _whole(model.embedding, rows)
    if stage is None or stage.ends:
        targets |= norm_targets("model.norm", model.norm)
        if not model.shape.tied:
            targets["lm_head.weight"] = _whole(model.output, rows)
    return targets


def body_targets(prefix: str, body: DecoderBody, first: int = 0) -> Destinations:
    """Of every layer; `prefix` takes its number, from `first` on."""
    found = Destinations()
    for index, layer in enumerate(body.layers, first):
        assert isinstance(layer, DecoderLayer)
        found |= {f"{prefix.format(index)}.{name}": one for name, one in layer_targets(layer).items()}
    return found


def layer_targets(layer: DecoderLayer) -> Destinations:
    """Of one layer, behind its prefix."""
    targets = _projections(layer) | _mlp(layer)
    of_mlp = None if layer.shape.parallel else layer.norm_before_mlp
    for name, norm in (
        ("input_layernorm", layer.norm_before_attention),
        # Where results are normalised, this name is the result's norm and the one before the MLP has its own.
        ("post_attention_layernorm", layer.norm_attended or of_mlp),
        ("pre_feedforward_layernorm", of_mlp if layer.norm_attended else None),
        ("post_feedforward_layernorm", layer.norm_result),
    ):
        targets |= norm_targets(name, norm)
    names = ("q_norm", "k_norm") if layer.shape.latent is None else ("q_a_layernorm", "kv_a_layernorm")
    of_ranks, cuts = layer.shape.qk_norm in (HeadNorm.All, HeadNorm.Own), cuts_of(layer.shape)
    for name, norm, cut in zip(names, (layer.norm_q, layer.norm_k), (cuts.rows, cuts.kv_rows), strict=True):
        found = norm_targets(f"self_attn.{name}", norm, cut if of_ranks else WHOLE)
        if layer.shape.latent is None and reordered(layer.shape) and layer.shape.qk_norm is not HeadNorm.All:
            order = torch.tensor(head_order(layer.shape))
            found = {key: Ordered(one, order, last=True) for key, one in found.items()}
        targets |= found
    return targets


def _projections(layer: DecoderLayer) -> Destinations:
    if isinstance(layer.qkv, LatentQkv) and isinstance(layer.out, LatentOut):
        return dict(latent_targets(layer.qkv, layer.out, cuts_of(layer.shape)))
    assert isinstance(layer.qkv, Linear)
    assert isinstance(layer.out, Linear)
    shape, targets = layer.shape, Destinations()
    q_rows, kv_rows = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    cuts = cuts_of(shape)
    for name, first, rows, heads, cut in (
        ("self_attn.q_proj", 0, q_rows, shape.heads, cuts.rows),
        ("self_attn.k_proj", q_rows, kv_rows, shape.kv_heads, cuts.kv_rows),
        ("self_attn.v_proj", q_rows + kv_rows, kv_rows, 0, cuts.kv_rows),
    ):
        if heads and reordered(shape):
            targets |= ordered(linear_targets(name, layer.qkv, first, rows), rows_of(shape, heads), cut)
        else:
            targets |= linear_targets(name, layer.qkv, first, rows, cut)
    if "self_attn.qkv_proj" in shape.fused:
        targets = stacked("self_attn.qkv_proj", targets)
    return targets | linear_targets("self_attn.o_proj", layer.out, 0, shape.hidden, cuts.columns)


def _mlp(layer: DecoderLayer) -> Destinations:
    shape, mlp, wide, cuts = layer.shape, layer.mlp, layer.shape.intermediate, cuts_of(layer.shape)
    if isinstance(mlp, Experts):
        return _experts(mlp, shape)
    targets = Destinations()
    if shape.gated:
        targets |= linear_targets("mlp.gate_proj", mlp.gate_up, 0, wide, cuts.rows)
    targets |= linear_targets("mlp.up_proj", mlp.gate_up, wide if shape.gated else 0, wide, cuts.rows)
    if "mlp.gate_up_proj" in shape.fused:
        targets = stacked("mlp.gate_up_proj", targets)
    return targets | linear_targets("mlp.down_proj", mlp.down, 0, shape.hidden, cuts.columns)


def _experts(mlp: Experts, shape: ModelShape) -> Destinations:
    """Of each expert by itself: the loader takes stacks apart."""
    targets: Destinations = {"mlp.gate.weight": _whole(mlp.router)}
    own, cuts = expert_cuts(shape), cuts_of(shape)
    for expert, gate_up, down in zip(mlp.mixture.held, mlp.gate_up.data, mlp.down.data, strict=True):
        targets |= _gated(f"mlp.experts.{expert}", gate_up, down, own)
    if mlp.shared_gate_up is not None and mlp.shared_down is not None:
        targets |= _gated("mlp.shared_expert", mlp.shared_gate_up, mlp.shared_down, cuts)
    if mlp.shared_gate is not None:
        targets["mlp.shared_expert_gate.weight"] = _whole(mlp.shared_gate)
    return targets


def _gated(name: str, gate_up: Tensor, down: Tensor, cuts: Cuts) -> Destinations:
    """Of an MLP whose gate and up are one matrix."""
    width = down.shape[1]
    return {
        f"{name}.gate_proj.weight": Target(gate_up, 0, width, cut=cuts.rows),
        f"{name}.up_proj.weight": Target(gate_up, width, width, cut=cuts.rows),
        f"{name}.down_proj.weight": Target(down, 0, down.shape[0], cut=cuts.columns),
    }


def norm_targets(name: str, norm: RowNorm | None, cut: Cut = WHOLE) -> Destinations:
    """Of `norm`, `name` in a checkpoint, which is its part `cut`; none where there is no norm."""
    if norm is None:
        return {}
    plus = 1.0 if norm.kind is Norm.RmsPlusOne else 0.0
    found: Destinations = {f"{name}.weight": Target(norm.weight, 0, norm.weight.shape[0], plus, cut)}
    if norm.bias is not None:
        found[f"{name}.bias"] = _whole(norm.bias)
    return found


def linear_targets(name: str, linear: Linear, first: int, rows: int, cut: Cut = WHOLE) -> Destinations:
    """Of `rows` outputs of `linear` from `first` on, `name` in a checkpoint, which are its part `cut`."""
    found = {f"{name}.{suffix}": one for suffix, one in linear.weight.destinations(first, rows, cut).items()}
    if linear.bias is not None:
        # What divides a product's inputs leaves its outputs, and their bias, whole.
        found[f"{name}.bias"] = Target(linear.bias, first, rows, cut=WHOLE if cut.dim else cut)
    return found


def _whole(parameter: Tensor, cut: Cut = WHOLE) -> Target:
    return Target(parameter, 0, parameter.shape[0], cut=cut)


def head_order(shape: ModelShape) -> tuple[int, ...]:
    """For each element of a head here: which it is in the checkpoint. Pairs that turn come first in both halves."""
    width, half = shape.rotated or shape.head_dim, shape.head_dim // 2
    turned = [*range(0, width, 2), *range(1, width, 2)] if shape.interleaved else [*range(width)]
    still = [*range(width, shape.head_dim)]
    first, second = turned[: width // 2], turned[width // 2 :]
    return (*first, *still[: half - width // 2], *second, *still[half - width // 2 :])


def reordered(shape: ModelShape) -> bool:
    """Whether any element moves."""
    return bool(shape.rotated) or shape.interleaved


def rows_of(shape: ModelShape, heads: int) -> Tensor:
    """The order of the rows of a matrix of `heads` that are rotated."""
    return (torch.tensor(head_order(shape)) + shape.head_dim * torch.arange(heads)[:, None]).flatten()


def ordered(destinations: Mapping[str, Destination], order: Tensor, cut: Cut) -> Destinations:
    """`destinations` of a matrix of which a rank has the part `cut`, whose rows are in `order`."""
    return {name: Divided(Ordered(one, order), cut) for name, one in destinations.items()}


def stacked(name: str, destinations: Mapping[str, Destination]) -> Destinations:
    """`destinations` of matrices that a checkpoint has as the one matrix `name`, and of their biases."""
    found: dict[str, list[Destination]] = {}
    for one, destination in destinations.items():
        found.setdefault(one.rpartition(".")[2], []).append(destination)
    return {f"{name}.{suffix}": Stacked(tuple(parts)) for suffix, parts in found.items()}
