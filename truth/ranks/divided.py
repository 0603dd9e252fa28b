"""Subjects of the matrix over several ranks: sizes that divide, and checkpoints, of which each rank reads its part."""

from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from graphpod_policy import EngineConfig, GraphRequest, ModelConfig, ModelFacts, resolve
from graphpod_policy.features import Features
from graphpod_policy.model.architectures import ARCHITECTURES, Architecture
from graphpod_policy.start.parallelism import indivisible, not_by_ranks
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.models.attention.latent_targets import KeysAndValues
from graphpod_runtime.models.decoder import Decoder
from graphpod_runtime.models.decoder_targets import decoder_targets
from graphpod_runtime.models.tensor_destination import Destination, Divided, Ordered, Stacked, Target
from truth import models
from truth.models import Subject
from truth.ranks.spread import Spread


def divisible(subject: Subject, spread: Spread) -> Subject:
    """`subject` with heads and a vocabulary that the ranks of a layer divide, if there are several. They share a
    key-value head where it has one; with attention over latents each head has its own."""
    if (tensor := spread.tensor) == 1:
        return subject
    heads, kv_heads = 2 * tensor, tensor
    if subject.config["num_key_value_heads"] == 1:
        kv_heads = 1
    elif "kv_lora_rank" in subject.config:
        kv_heads = heads
    vocab = models.VOCAB + -models.VOCAB % tensor
    sizes = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocab}
    return replace(subject, config={**subject.config, **sizes})


def refused_over_ranks(subject: Subject, features: Features) -> str | None:
    """The reason that stands against ranks over `subject`, with the field it names; None: they run."""
    request = GraphRequest()
    model = ModelConfig(subject.name, "")
    config = EngineConfig.of(features, request, resolve(features, request), dtype=subject.dtype, model=model)
    facts = ModelFacts.of(subject.config)
    for obstacle in (*indivisible(config, facts), *not_by_ranks(config, facts)):
        return f"{obstacle.reason} ({obstacle.what.partition(':')[0]})"
    return None


def write_checkpoint(folder: Path) -> None:
    """The model that `models.load` draws for the config.json in `folder`, as a checkpoint."""
    model = models.load(folder, torch.float32, models.CONTEXT, HOST)
    assert isinstance(model, Decoder), "no other model has ranks"
    written = {}
    for name, target in decoder_targets(model).items():
        written[_stored_name(ARCHITECTURES[model.shape.architecture], name)] = _stored(target).contiguous()
    save_file(written, folder / "model.safetensors")


def _stored_name(architecture: Architecture, own: str) -> str:
    """What a checkpoint calls the decoder's tensor `own`."""
    if architecture.tensor(own) == own:
        return own
    name = own
    for stored, ours in reversed(architecture.renamed.items()):
        name = name.replace(f".{ours}.", f".{stored}.")
    assert architecture.tensor(name) == own, f"{name} is not read as {own}"
    return name


def _stored(target: Destination) -> Tensor:
    """The tensor of a checkpoint that `target`, of a whole model, was filled by."""
    match target:
        case Target():
            return target.view - target.plus
        case Divided():
            return _stored(target.into)
        case Stacked():
            return torch.cat([_stored(part) for part in target.parts])
        case Ordered():
            ordered = _stored(target.into)
            found = torch.empty_like(ordered)
            found[(..., target.order) if target.last else target.order] = ordered
            return found
        case KeysAndValues():
            return torch.cat((target.keys, target.values), dim=1).flatten(0, 1)
    raise AssertionError(f"nothing writes what {type(target).__name__} reads")
