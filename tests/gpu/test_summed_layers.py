"""Layers over two GPUs with a sum, its residual and the next norm in one launch, against their halves. Skipped on a
machine with one."""

from pathlib import Path

import pytest
import torch
import torch.distributed as distributed
import torch.multiprocessing as processes
from torch import Tensor

from graphpod_runtime.distributed.agreement import Together
from graphpod_runtime.distributed.collectives import adds_at_once, share_layers_with
from graphpod_runtime.distributed.pair import pair_of
from graphpod_runtime.models.decoder import Decoder
from graphpod_runtime.models.layers.summed_layers import SummedLayers
from graphpod_runtime.models.loader import load_model
from tests.gpu.test_pair import joined
from tests.unit.runtime.conftest import write_family, write_llama

pytestmark = pytest.mark.gpu
NAMES = ("llama", "qwen2", "qwen3")
ROUNDING = 2.0**-8
"""Of bf16, to the largest state."""


def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Something that every head has a part in, of the size of attention's results."""
    group = q.shape[1] // k.shape[1]
    return (torch.tanh(q * k.repeat_interleave(group, 1)) * v.repeat_interleave(group, 1)).flatten(1)


def _rank(rank: int, folder: str) -> None:
    device = joined(rank, folder)
    ranks = Together(rank, 2, distributed.new_group(backend="gloo"))
    share_layers_with(None, pair_of(None, device, ranks))
    for name in NAMES:
        model = load_model(Path(folder, name), torch.bfloat16, 256, device, rank=rank, ranks=2)
        assert isinstance(model, Decoder)
        summed = SummedLayers.of(model.body.layers)
        assert summed is not None, name
        assert not summed.take(torch.zeros(1, model.shape.hidden, device=device).bfloat16()), "nothing is compiled"
        for count in (1, 5, 64, 128):
            generator = torch.Generator(device).manual_seed(count)
            hidden = torch.randn(count, model.shape.hidden, generator=generator, device=device).bfloat16()
            assert adds_at_once(hidden)
            positions = torch.randint(0, 256, (count,), generator=generator, device=device)
            expected = model.body(hidden.clone(), positions, attend).float()
            found = summed(hidden, model.body.rotations(positions), attend)
            others = [torch.empty_like(found) for _ in range(2)]
            distributed.all_gather(others, found)
            assert torch.equal(*others), "ranks have the same bits"
            allowed = 4 * ROUNDING * float(expected.abs().max())
            assert float((found.float() - expected).abs().max()) <= allowed, (name, count)
    share_layers_with(None)
    distributed.destroy_process_group()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_layers_with_sums_in_one_launch_give_what_their_halves_do(tmp_path: Path) -> None:
    write_llama(tmp_path / NAMES[0], heads=8, kv_heads=2, vocab_size=212)
    for name in NAMES[1:]:
        write_family(tmp_path / name, name, num_attention_heads=4, num_key_value_heads=2, vocab_size=212)
    processes.spawn(_rank, args=(str(tmp_path),), nprocs=2)
