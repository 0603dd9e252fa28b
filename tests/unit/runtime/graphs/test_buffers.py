"""Static buffers: padding by slot, no stale rows, no moved memory."""

import pytest
import torch

from graphpod_runtime.graphs.buffers import Buffers, Outputs, Slot


def buffers() -> Buffers:
    return Buffers(
        Slot("tokens", 8, (), torch.int64),
        Slot("lengths", 8, (), torch.int64, padding=1),
        Slot("tables", 8, (4,), torch.int64),
        Slot("result", 8, (2,), torch.float32, padding=None),
    )


def test_rows_beyond_the_real_ones_take_the_slots_padding_up_to_the_size() -> None:
    slots = buffers()
    slots.load("lengths", torch.full((8,), 9), 8)
    slots.load("lengths", torch.tensor([5, 6]), 4)
    assert slots.view("lengths", 8).tolist() == [5, 6, 1, 1, 9, 9, 9, 9]


def test_a_narrow_row_is_padded_on_its_right() -> None:
    slots = buffers()
    slots.load("tables", torch.full((3, 4), 7), 4)
    slots.load("tables", torch.tensor([[1, 2]]), 4)
    assert slots.view("tables", 4).tolist() == [[1, 2, 0, 0], [0] * 4, [0] * 4, [0] * 4]


def test_a_slot_without_padding_keeps_its_rows() -> None:
    slots = buffers()
    slots.load("result", torch.ones(8, 2), 8)
    slots.load("result", torch.zeros(1, 2), 4)
    assert slots.view("result", 8).sum() == 14


def test_loading_never_moves_a_buffer() -> None:
    slots = buffers()
    before = {name: tensor.data_ptr() for name, tensor in slots}
    for count in (1, 8, 3):
        slots.load("tokens", torch.arange(count), 8)
        slots.load("tables", torch.ones(count, 4, dtype=torch.int64), 8)
    assert {name: tensor.data_ptr() for name, tensor in slots} == before


@pytest.mark.parametrize(("count", "size"), [(5, 4), (8, 9)])
def test_rows_that_do_not_fit_are_refused(count: int, size: int) -> None:
    with pytest.raises(ValueError, match="tokens: "):
        buffers().load("tokens", torch.arange(count), size)


def test_two_slots_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two slots"):
        Buffers(Slot("a", 1, (), torch.int64), Slot("a", 1, (), torch.int64))


def test_outputs_keep_what_is_no_tensor_as_it_is() -> None:
    outputs = Outputs((torch.zeros(2, 3), [None, torch.zeros(2), 7]), rows=8)
    outputs.write((torch.ones(4, 3), [None, torch.arange(4.0), 7]))
    states, (absent, numbers, seven) = outputs.view(4)
    assert torch.equal(states, torch.ones(4, 3))
    assert numbers.tolist() == [0, 1, 2, 3]
    assert (absent, seven) == (None, 7)


def test_outputs_of_another_type_are_no_results_for_them() -> None:
    outputs = Outputs((torch.zeros(2, 3), torch.zeros(2)), rows=8)
    with pytest.raises(ValueError, match=r"result 1 of the pass is torch\.int64; its buffer is torch\.float32"):
        outputs.write((torch.ones(4, 3), torch.arange(4)))
