"""Tensors move into a span as they are: the same objects, the same values, the same sharing."""

import pytest
import torch
from torch import nn

from graphpod_runtime.memory.host_copy import SLAB_BYTES, HostCopy
from graphpod_runtime.memory.host_span import HostSpan
from graphpod_runtime.memory.relocation import bytes_of, relocate
from graphpod_runtime.memory.span import ALIGNMENT


class Tied(nn.Module):
    """Two parameters of which one is a part of the other's memory, a parameter twice, FP8, and one of no size."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = nn.Parameter(torch.randn(6, 5), requires_grad=False)
        self.rows = nn.Parameter(self.whole.data[2:4], requires_grad=False)
        self.turned = nn.Parameter(self.whole.data.T, requires_grad=False)
        self.again = self.whole
        self.register_buffer("eight", torch.randn(7, 3).to(torch.float8_e4m3fn))
        self.register_buffer("nothing", torch.zeros(0))


def moved() -> tuple[Tied, HostSpan, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    module = Tied()
    before = {name: one.clone() for name, one in module.state_dict().items()}
    span = HostSpan(bytes_of(module))
    relocate(module, span)
    return module, span, before


def test_members_keep_identity_values_and_what_they_share() -> None:
    module, span, before = moved()
    assert span.size == 2 * ALIGNMENT
    assert module.again is module.whole
    for name, one in module.state_dict().items():
        assert torch.equal(one.float(), before[name].float()), name
    first = span.tensor(0, 1).data_ptr()
    assert (module.whole.data_ptr(), module.eight.data_ptr()) == (first, first + ALIGNMENT)
    module.whole.data[2] = 9.0
    assert module.rows[0].tolist() == [9.0] * 5
    assert module.turned[:, 2].tolist() == [9.0] * 5


def test_each_tensor_has_a_storage_of_its_own_in_the_span() -> None:
    """By storages captures know what they may touch: one for all would know too much."""
    module, _, _ = moved()
    storages = {one.untyped_storage().data_ptr() for one in (module.whole, module.eight)}
    assert len(storages) == 2
    assert module.whole.untyped_storage().nbytes() == 120


def test_what_was_released_reads_as_zeros_and_a_copy_brings_it_back() -> None:
    module, span, before = moved()
    copy, at = HostCopy(span), module.whole.data_ptr()
    span.release()
    span.restore()
    assert module.whole.count_nonzero() == 0
    copy.write(span)
    assert torch.equal(module.whole, before["whole"])
    assert module.whole.data_ptr() == at


@pytest.mark.parametrize("size", [0, 1, SLAB_BYTES - 1, SLAB_BYTES + 5])
def test_a_copy_has_every_byte_of_a_span(size: int) -> None:
    span = HostSpan(size)
    ends = [span.tensor(0, 1), span.tensor(size - 1, 1)] if size else []
    for one in ends:
        one.fill_(7)
    calls: list[None] = []
    copy = HostCopy(span, lambda: calls.append(None))
    span.release()
    copy.write(span)
    assert [one.item() for one in ends] == [7] * len(ends)
    assert len(calls) == -(-size // SLAB_BYTES)
