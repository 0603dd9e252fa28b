"""Our models against transformers on random weights: each family, and what its config.json can ask for."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import (
    AutoModelForCausalLM,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from graphpod_policy import Policy
from graphpod_policy.model.architectures import ARCHITECTURES
from graphpod_runtime.base.shapes import Stretch
from graphpod_runtime.engine.forward.inputs import inputs_of
from graphpod_runtime.engine.offline import generate
from graphpod_runtime.engine.runner import Runner
from graphpod_runtime.engine.schedule.batch import Chunk, PrefillBatch
from graphpod_runtime.engine.schedule.sequence import Sequence
from graphpod_runtime.models.config_json import read_shape
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.models.random import random_model
from graphpod_runtime.models.rope.rope_tables import rope_tables
from graphpod_runtime.models.rope.stretches import LinearStretch, Llama3Stretch, YarnStretch
from tests.unit.runtime.conftest import FAMILIES, WINDOW, random_prompts, save_random, write_family, write_llama


def prefill_logits(runner: Runner, prompt: list[int]) -> torch.Tensor:
    """Logits of every prompt token, by the engine's own eager pass."""
    engine = runner._engine
    pages = runner.pages.take(-(-len(prompt) // runner.config.page_size))
    sequence = Sequence("0", prompt, len(prompt), 1, pages=pages)
    batch = PrefillBatch((Chunk(sequence, 0, len(prompt)),))
    inputs = inputs_of(batch, runner.config.page_size, engine.device)
    with torch.no_grad():
        engine.attention.plan(inputs)
        (hidden,) = engine.passes[inputs.phase].eager(inputs, engine.attention.run, inputs.count)
        return engine.model.head(hidden).cpu()


def reference_of(folder: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def assert_logits_are_those_of(reference: PreTrainedModel, runner: Runner) -> None:
    (prompt,) = random_prompts(1, shortest=60, longest=70)
    with torch.no_grad():
        expected = reference(torch.tensor([prompt])).logits[0]
    difference = (prefill_logits(runner, prompt) - expected).abs().max() / expected.abs().max()
    assert difference <= 1e-4


@pytest.mark.parametrize(("tied", "heads", "kv_heads"), [(True, 9, 3), (False, 9, 3), (False, 4, 4), (True, 4, 1)])
def test_logits_equal_transformers(
    tmp_path: Path, started: Callable[..., Runner], tied: bool, heads: int, kv_heads: int
) -> None:
    folder = write_llama(tmp_path, tied=tied, heads=heads, kv_heads=kv_heads)
    runner = started(Policy.Disabled, Policy.Disabled, folder=folder)
    assert_logits_are_those_of(LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32), runner)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_of_every_family_equal_transformers(
    tmp_path: Path, started: Callable[..., Runner], family: str, tied: bool
) -> None:
    folder = write_family(tmp_path, family, tied=tied)
    assert_logits_are_those_of(reference_of(folder), started(folder=folder))


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
    "rope_theta": 500000.0,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0}
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "the positions of Llama 3.1": ("llama", {"rope_parameters": LLAMA3}),
    "linearly stretched positions": ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0}}),
    "biases in attention": ("llama", {"attention_bias": True}),
    "biases in the MLP": ("llama", {"mlp_bias": True}),
    "biases beside normalised heads": ("qwen3", {"attention_bias": True}),
    "positions by YaRN": ("qwen3", {"rope_parameters": YARN}),
    "YaRN with its own sharpness": ("qwen2", {"rope_parameters": YARN | {"attention_factor": 1.7, "beta_fast": 16.0}}),
    "windows in upper layers": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    ),
    "windows by layer": (
        "qwen3",
        {
            "use_sliding_window": True,
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "a window that no text reaches": ("gemma3", {"sliding_window": 400}),
    "biases in Gemma": ("gemma3", {"attention_bias": True}),
    "plain positions in Gemma": ("gemma3", {"rope_parameters": None}),
}
"""What a config.json may ask for beyond sizes: family, and its fields."""


@pytest.mark.parametrize("name", ASKED)
def test_what_a_configuration_asks_for_is_computed(tmp_path: Path, started: Callable[..., Runner], name: str) -> None:
    family, settings = ASKED[name]
    write_llama(tmp_path, **settings) if family == "llama" else write_family(tmp_path, family, **settings)
    runner = started(Policy.Disabled, Policy.Disabled, folder=tmp_path)
    assert_logits_are_those_of(reference_of(tmp_path), runner)


def test_a_gemma_as_its_authors_wrote_it_reads_as_one_of_today(tmp_path: Path) -> None:
    """Published files have the older names of rotary parameters and windows, and leave out what is the default."""
    now = read_shape(write_family(tmp_path, "gemma3"))
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    for name in ("rope_parameters", "layer_types", "_sliding_window_pattern", "hidden_activation"):
        config.pop(name)
    config |= {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 3}
    config |= {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    path.write_text(json.dumps(config))
    assert read_shape(tmp_path) == now
    assert now.windows == (WINDOW, WINDOW, None)


@pytest.mark.parametrize("prefix", ["language_model.", "model.language_model."])
def test_the_text_part_of_a_gemma_that_sees_images_is_served(
    tmp_path: Path, started: Callable[..., Runner], prefix: str
) -> None:
    torch.manual_seed(0)
    row = FAMILIES["gemma3"]
    sizes = {"hidden_size": 96, "num_hidden_layers": 3, "num_key_value_heads": 3, "head_dim": 32}
    text = {"vocab_size": 211, "intermediate_size": 96, "initializer_range": 0.2, "max_position_embeddings": 512}
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = Gemma3Config(
        text_config=sizes | text | row.settings,
        vision_config=vision | {"model_type": "siglip_vision_model", "image_size": 28, "patch_size": 14},
        mm_tokens_per_image=1,
        image_token_index=210,
    )
    save_random(Gemma3ForConditionalGeneration(config), tmp_path)
    rename(tmp_path, prefix)
    reference = Gemma3ForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float32)
    assert_logits_are_those_of(reference, started(Policy.Disabled, Policy.Disabled, folder=tmp_path))


def rename(folder: Path, prefix: str) -> None:
    """The names of the decoder's tensors as one of both ways of writing has them."""
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    renamed = {}
    for name, tensor in load_file(path).items():
        plain = name.removeprefix("model.").removeprefix("language_model.").removeprefix("model.")
        if plain.startswith(("layers", "embed_tokens", "norm")):
            plain = f"model.{plain}" if prefix == "language_model." else plain
            plain = prefix + plain
        elif prefix == "model.language_model.":
            plain = f"model.{plain}"
        renamed[plain] = tensor
    save_file(renamed, path, metadata={"format": "pt"})


STRETCHES: dict[str, tuple[dict[str, Any], Stretch | None]] = {
    "default": ({"rope_type": "default"}, None),
    "linear": ({"rope_type": "linear", "factor": 8.0}, LinearStretch(8.0)),
    "llama3": (LLAMA3 | {"original_max_position_embeddings": 2048}, Llama3Stretch(8.0, 1.0, 4.0, 2048)),
    "yarn": (YARN | {"original_max_position_embeddings": 2048}, YarnStretch(4.0, 2048, 1.1386294361119891)),
    "yarn, not truncated": (
        YARN | {"original_max_position_embeddings": 2048, "truncate": False},
        YarnStretch(4.0, 2048, 1.1386294361119891, truncate=False),
    ),
}


@pytest.mark.parametrize("architecture", [name for name in ARCHITECTURES if hasattr(transformers, name)])
def test_a_rotation_that_a_configuration_leaves_out_is_that_of_transformers(architecture: str) -> None:
    theirs = getattr(transformers, architecture).config_class
    wanted = getattr(theirs.sub_configs.get("text_config", theirs), "default_theta", 10000.0)
    wanted = wanted["global"] if isinstance(wanted, dict) else wanted
    assert ARCHITECTURES[architecture].defaults.get("rope_theta", 10000.0) == wanted


@pytest.mark.parametrize("name", STRETCHES)
def test_rotary_tables_equal_transformers_bit_for_bit(name: str) -> None:
    parameters, stretch = STRETCHES[name]
    config = LlamaConfig(
        hidden_size=128,
        num_attention_heads=2,
        max_position_embeddings=8192,
        rope_parameters=parameters | {"rope_theta": 100000.0},
    )
    embedding = LlamaRotaryEmbedding(config)
    for dtype in (torch.float32, torch.bfloat16):
        expected = embedding(torch.zeros(1, dtype=dtype), torch.arange(8192)[None])
        cosines, sines = rope_tables(8192, 64, 100000.0, dtype, stretch)
        sines[..., :32].neg_()
        assert torch.equal(cosines[:, 0], expected[0][0])
        assert torch.equal(sines[:, 0], expected[1][0])


def test_embeddings_and_norms_of_a_gemma_in_bf16_are_transformers_bit_for_bit(tmp_path: Path) -> None:
    """The scale of embeddings is rounded before it is applied; 1 + w of a norm is not."""
    whole = AutoModelForCausalLM.from_pretrained(write_family(tmp_path, "gemma3"), dtype=torch.bfloat16)
    whole.save_pretrained(tmp_path)
    reference, model = whole.model, load_model(tmp_path, torch.bfloat16, 512)
    tokens = torch.arange(211)
    with torch.no_grad():
        embedded = model.embed(tokens)
        assert torch.equal(embedded, reference.embed_tokens(tokens))
        norm = model.module().get_submodule("norm")
        assert torch.equal(norm(embedded * 3), reference.norm(embedded * 3))


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_greedy_text_equals_transformers_over_chunks_pages_and_windows(
    tmp_path: Path, started: Callable[..., Runner], family: str
) -> None:
    folder = write_llama(tmp_path) if family == "llama" else write_family(tmp_path, family)
    runner = started(Policy.Disabled, Policy.Disabled, folder=folder)
    prompts = random_prompts(6)
    reference = reference_of(folder)
    expected = [
        reference.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False, pad_token_id=0)[
            0, len(prompt) :
        ].tolist()
        for prompt in prompts
    ]
    assert generate(runner, prompts, 12) == expected


@pytest.mark.parametrize("family", ["llama", *FAMILIES])
def test_random_weights_of_a_configuration_are_always_the_same(tmp_path: Path, family: str) -> None:
    folder = write_llama(tmp_path) if family == "llama" else write_family(tmp_path, family)
    (folder / "model.safetensors").unlink()
    one, other = (random_model(folder, torch.float32, 64) for _ in range(2))
    assert one.shape == read_shape(folder)
    for (name, left), (_, right) in zip(
        one.module().named_parameters(), other.module().named_parameters(), strict=True
    ):
        assert torch.equal(left, right), name
        assert left.isfinite().all(), name
