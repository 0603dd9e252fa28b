"""A model folder as far as the front reads it: a byte-level tokenizer with words, and no weights."""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from graphpod_policy import EngineConfig, GraphConfig, ModelConfig, PhasePlan, Policy, ServingConfig

NAME = "words"
WORDS = 4096
FIRST_WORD = 256
"""Ids below are single bytes."""
MOST_STREAMS = 1024
MOST_TOKENS = 200_000


def write_tokenizer(model: Path, vocabulary: int = FIRST_WORD + WORDS) -> None:
    """A tokenizer for the model in the folder: single bytes, then words."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [f"Ġword{number}" for number in range(vocabulary - FIRST_WORD)]
    tokenizer = Tokenizer(models.BPE(vocab={text: id for id, text in enumerate([*letters, *words])}, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(model / "tokenizer.json"))
    (model / "tokenizer_config.json").write_text(json.dumps({}))


def write(folder: Path) -> Path:
    """The configuration of an engine for a new model folder, both in `folder`."""
    model = folder / "model"
    model.mkdir()
    write_tokenizer(model)
    graph = GraphConfig(PhasePlan(Policy.Auto, Policy.Breakable, (4,)), PhasePlan(Policy.Auto, Policy.Full, (1,)))
    config = EngineConfig(
        model=ModelConfig(NAME, str(model)), graph=graph, dtype="float32", max_model_len=MOST_TOKENS,
        max_batch=MOST_STREAMS, prefill_chunk=16, page_size=16,
        serving=ServingConfig(max_queue=MOST_STREAMS, drain_seconds=30),
    )  # fmt: skip
    path = folder / "engine.json"
    path.write_bytes(config.canonical())
    return path
