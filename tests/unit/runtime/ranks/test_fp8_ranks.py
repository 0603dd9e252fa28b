"""FP8 over ranks: their parts are those of one rank's weights, and they write what one rank writes."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from graphpod_policy import KvCacheDtype, Policy, Quantization
from graphpod_runtime.base.shapes import HOST
from graphpod_runtime.distributed import collectives
from graphpod_runtime.kernels.fp8_product import BLOCK
from graphpod_runtime.models.decoder import Decoder
from graphpod_runtime.models.layers.layer import DecoderLayer
from graphpod_runtime.models.layers.layer_functions import After
from graphpod_runtime.models.loader import load_model
from graphpod_runtime.models.weights.fp8 import Fp8BlockWeight, Fp8Weight
from graphpod_runtime.models.weights.linear import Linear
from graphpod_runtime.models.weights.product import Form, Tensors, matmul
from tests.unit.runtime.conftest import write_llama
from tests.unit.runtime.models.fp8_checkpoints import FORMATS, quantize
from tests.unit.runtime.ranks.asking import Told
from tests.unit.runtime.ranks.conftest import GREEDY, SCORED, VOCABULARY, alone, config, sampled
from tests.unit.runtime.ranks.rank_forks import RankForks
from truth.families.tiny import tiny
from truth.families.trial import written as write_tiny

TWO = 2
ONLINE = "online"
WIDE: dict[str, Any] = {"heads": 16, "kv_heads": 16, "intermediate_size": 256, "vocab_size": VOCABULARY}
"""Every part of two ranks is of whole blocks."""
DYNAMIC = ("compressed, channels", "compressed, a layer left out", ONLINE)
"""Formats in which a row of activations has its own scale: a rank that has a part of the row finds another one."""
WORSE = 1.1
"""How much further than one rank's log-probabilities those of ranks may be from the unrounded model's, on average."""


def plain(folder: Path) -> Path:
    return write_llama(folder, num_hidden_layers=2, **WIDE)


def written(folder: Path, name: str) -> Path:
    plain(folder)
    if name != ONLINE:
        covers = (lambda module: "layers.1." not in module) if "left out" in name else (lambda module: True)
        quantize(folder, FORMATS[name], covers)
    return folder


def loaded(folder: Path, rank: int = 0, ranks: int = 1) -> Decoder:
    found = load_model(folder, torch.float32, 64, HOST, quantize=True, rank=rank, ranks=ranks)
    assert isinstance(found, Decoder)
    return found


def joined(parts: list[Linear], fused: tuple[int, ...], dim: int) -> tuple[Tensor, Tensor]:
    """Matrix and scales of `parts`, whose matrices are `fused` of so many rows, along `dim`."""
    matrices, scales = [], []
    for part in parts:
        assert isinstance(part.weight, Fp8Weight | Fp8BlockWeight)
        matrices.append(part.weight.matrix.float())
        scales.append(part.weight.scale)
    blocks = isinstance(parts[0].weight, Fp8BlockWeight)
    if dim:
        assert blocks or all(torch.equal(one, scales[0]) for one in scales)
        return torch.cat(matrices, 1), torch.cat(scales, 1) if blocks else scales[0]
    rows = [size // len(parts) for size in fused]
    of_scales = [size // BLOCK for size in rows] if blocks else rows
    return _by_matrix(matrices, rows), _by_matrix(scales, of_scales)


def _by_matrix(parts: list[Tensor], rows: list[int]) -> Tensor:
    """Rows of ranks that each have a part of several matrices, matrix by matrix."""
    return torch.cat([piece for each in zip(*(part.split(rows) for part in parts), strict=True) for piece in each])


@pytest.mark.parametrize("name", [*FORMATS, ONLINE])
def test_parts_of_ranks_are_those_of_one_ranks_weights(tmp_path: Path, name: str) -> None:
    """Also where weights become FP8 when they are loaded: a scale is that of a whole row, wherever its parts are."""
    folder = written(tmp_path, name)
    whole, parts = loaded(folder), [loaded(folder, rank, TWO) for rank in range(TWO)]
    wide, compared = 256, 0
    for index, layer in enumerate(whole.body.layers):
        assert isinstance(layer, DecoderLayer)
        for pick, fused, dim in (
            (lambda one: one.qkv, (wide,) * 3, 0),
            (lambda one: one.out, (wide,), 1),
            (lambda one: one.mlp.gate_up, (wide,) * 2, 0),
            (lambda one: one.mlp.down, (wide,), 1),
        ):
            weight = pick(layer).weight
            if not isinstance(weight, Fp8Weight | Fp8BlockWeight):
                continue
            matrix, scale = joined([pick(part.body.layers[index]) for part in parts], fused, dim)
            assert torch.equal(matrix, weight.matrix.float())
            assert torch.equal(scale, weight.scale)
            compared += 1
    assert compared == (4 if "left out" in name else 8)


@pytest.mark.parametrize(
    ("name", "spread"),
    sampled(
        *((name, {"tensor": TWO}) for name in (*FORMATS, ONLINE)),
        ("compressed, a layer left out", {"pipeline": TWO}),
        ("compressed, blocks", {"pipeline": TWO, "tensor": TWO}),
        count=1,
    ),
)
def test_ranks_with_fp8_weights_write_what_one_rank_writes(
    ranks: RankForks, tmp_path: Path, name: str, spread: dict[str, int]
) -> None:
    """Where activations have a scale for each row, parts of a row are rounded otherwise: no worse than the whole."""
    folder, changes = written(tmp_path / "fp8", name), {"quantization": Quantization.Fp8} if name == ONLINE else {}
    rounds_otherwise = "tensor" in spread and name in DYNAMIC
    ask = SCORED if rounds_otherwise else GREEDY
    found = ranks.answer(config(folder, Policy.Breakable, Policy.Full, **spread, **changes), ask)
    assert not found.failure
    assert found.graphs == {"prefill": ("Breakable", 2, "Passed"), "decode": ("Full", 2, "Passed")}
    (wanted,) = alone(folder, ask, **changes)
    if rounds_otherwise:
        (exact,) = alone(plain(tmp_path / "plain"), ask)
        assert distance(found.told[0], exact) < WORSE * distance(wanted, exact)
    else:
        assert found.told[0].texts == wanted.texts


@pytest.mark.parametrize(
    ("model_type", "ranks", "changes"),
    [
        ("llama", 2, {}),
        ("qwen3", 2, {}),
        ("phi3", 4, {}),
        ("glm", 2, {}),
        ("glm4", 4, {}),
        ("cohere", 2, {"use_qk_norm": True}),
        ("cohere2", 4, {}),
    ],
)
def test_the_scales_of_parts_of_rows_are_all_that_ranks_do_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model_type: str, ranks: int, changes: dict[str, Any]
) -> None:
    """One rank that rounds each part of a row by its own scale has the logits of ranks, whatever a family fuses."""
    write_tiny(tiny(model_type, vocab_size=VOCABULARY, **changes), tmp_path)
    whole, parts = loaded(tmp_path), [loaded(tmp_path, rank, ranks) for rank in range(ranks)]
    by_rows = logits(whole)
    by_ranks = logits_of_ranks(parts, monkeypatch)
    monkeypatch.setattr(After, "_product", product_of_parts(ranks))
    by_parts = logits(whole)
    apart = (by_ranks - by_rows).abs().mean()
    assert apart > 1e-3
    # Not equal to the bit: a last place may tip what is rounded to FP8.
    assert (by_ranks - by_parts).abs().mean() < apart / 20


def logits(model: Decoder) -> Tensor:
    """Of a prompt whose tokens attend to those in front of them."""
    tokens = torch.arange(40) * 7 % VOCABULARY

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (heads.transpose(0, 1)[None] for heads in (q, k, v))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return attended[0].transpose(0, 1).flatten(1)

    with torch.no_grad():
        hidden = model.body(model.embed(tokens), torch.arange(len(tokens)), attend)
        return model.head(hidden)


def logits_of_ranks(parts: list[Decoder], monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """Of ranks that are threads."""
    count, own = len(parts), threading.local()
    here, brought = threading.Barrier(count, timeout=60), dict[int, Tensor]()

    def of_all(x: Tensor) -> list[Tensor]:
        brought[own.rank] = x.clone()
        here.wait()
        found = [brought[rank] for rank in range(count)]
        here.wait()
        return found

    def summed(x: Tensor, group: None) -> None:
        x.copy_(torch.stack(of_all(x)).sum(0))

    def gathered(into: Tensor, x: Tensor, group: None) -> None:
        into.copy_(torch.cat(of_all(x)))

    def run(rank: int) -> Tensor:
        own.rank = rank
        return logits(parts[rank])

    with monkeypatch.context() as patched, ThreadPoolExecutor(count) as threads:
        patched.setattr(collectives, "distributed", SimpleNamespace(all_reduce=summed))
        patched.setattr(collectives, "_gather", gathered)
        first, *others = threads.map(run, range(count))
    assert all(torch.equal(one, first) for one in others)
    return first


def product_of_parts(ranks: int) -> Any:
    """`After._product` of one rank that rounds as `ranks` do."""

    def product(after: After, form: Form, x: Tensor, weight: Tensors, bias: Tensor | None) -> Tensor:
        matrix, scale, given = weight
        assert form is Form.Fp8
        assert matrix is not None
        pairs = zip(x.chunk(ranks, 1), matrix.chunk(ranks, 1), strict=True)
        total = torch.stack([matmul(form, row, (part, scale, given), None) for row, part in pairs]).sum(0)
        return total if bias is None else total + bias

    return product


def distance(one: Told, other: Told) -> float:
    """Between the log-probabilities of prompts, for a token."""
    pairs = [pair for each in zip(one.scored, other.scored, strict=True) for pair in zip(*each, strict=True)]
    return sum(abs(own - wanted) for own, wanted in pairs) / len(pairs)


@pytest.mark.parametrize("spread", sampled(({"tensor": 3},), ({"pipeline": 3},), count=1))
def test_ranks_with_an_fp8_cache_write_what_one_rank_writes(
    ranks: RankForks, smollm2: Path, spread: dict[str, int]
) -> None:
    """They round the same keys and values by the same scales."""
    changes = {"kv_cache_dtype": KvCacheDtype.Fp8}
    found = ranks.answer(config(smollm2, Policy.Breakable, Policy.Full, **spread, **changes), GREEDY)
    assert not found.failure
    assert found.told[0].texts == alone(smollm2, GREEDY, **changes)[0].texts
    assert len({one["kvBytes"] for one in found.ranks}) == 1
