"""Subjects of the matrix over several ranks: sizes that divide, and checkpoints, of which each rank reads its part."""

from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file

from graphpod_policy import EngineConfig, GraphRequest, ModelConfig, ModelFacts, resolve
from graphpod_policy.features import Features
from graphpod_policy.start.parallelism import indivisible, not_by_ranks
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.models.decoder import Decoder
from graphpod_runtime.models.decoder_targets import decoder_targets
from graphpod_runtime.models.tensor_destination import Target
from truth import models
from truth.models import Subject


def divisible(subject: Subject, tensor: int) -> Subject:
    """`subject` with heads and a vocabulary that so many ranks divide. They share a key-value head where it has one;
    with attention over latents each head has its own."""
    heads, kv_heads = 2 * tensor, tensor
    if subject.config["num_key_value_heads"] == 1:
        kv_heads = 1
    elif "kv_lora_rank" in subject.config:
        kv_heads = heads
    vocab = models.VOCAB + -models.VOCAB % tensor
    sizes = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocab}
    return replace(subject, config={**subject.config, **sizes})


def refused_over_ranks(subject: Subject, features: Features) -> str | None:
    """The reason that stands against ranks over `subject`; None: they run."""
    request = GraphRequest()
    model = ModelConfig(subject.name, "")
    config = EngineConfig.of(features, request, resolve(features, request), dtype=subject.dtype, model=model)
    facts = ModelFacts.of(subject.config)
    for obstacle in (*indivisible(config, facts), *not_by_ranks(config, facts)):
        return obstacle.reason
    return None


def write_checkpoint(folder: Path) -> None:
    """The model that `models.load` draws for the config.json in `folder`, as a checkpoint."""
    model = models.load(folder, torch.float32, models.CONTEXT, HOST)
    assert isinstance(model, Decoder), "no other model has ranks"
    written = {}
    for name, target in decoder_targets(model).items():
        assert isinstance(target, Target), "what is in another order in a checkpoint has no ranks"
        written[name] = (target.view - target.plus).contiguous()
    save_file(written, folder / "model.safetensors")
