"""Which way two GPUs sum a message: a choice that both make alike, by its bytes and times they have agreed on."""

import sys

import pytest
import torch

from graphpod_runtime.distributed.sum_ways import (
    MEASURED,
    PUSHED,
    ROW_WORDS,
    ROWS,
    Way,
    adds_at_once,
    most_in_pieces,
    way_of,
)

MIB = 1 << 20


@pytest.mark.parametrize(
    ("nbytes", "dtype", "most", "way"),
    [
        (4, torch.bfloat16, sys.maxsize, Way.Words),
        (PUSHED, torch.float32, 0, Way.Words),
        (PUSHED + 16, torch.bfloat16, sys.maxsize, Way.Pieces),
        (PUSHED + 16, torch.bfloat16, PUSHED, Way.Backend),
        (16 * MIB, torch.float16, 16 * MIB, Way.Pieces),
        (16 * MIB + 16, torch.float16, 16 * MIB, Way.Backend),
        (64 * MIB, torch.float32, sys.maxsize, Way.Pieces),
        (16 * MIB + 8, torch.bfloat16, sys.maxsize, Way.Backend),  # not of whole vectors
        (6, torch.bfloat16, sys.maxsize, Way.Backend),  # not of whole words
        (64, torch.int64, sys.maxsize, Way.Backend),
        (16 * MIB, torch.float64, sys.maxsize, Way.Backend),
    ],
)
def test_a_message_goes_the_way_of_its_bytes_and_type(nbytes: int, dtype: torch.dtype, most: int, way: Way) -> None:
    assert way_of(nbytes, dtype, most) is way


@pytest.mark.parametrize(
    ("pieces", "backend", "most"),
    [
        ((9, 17, 52), (22, 40, 74), sys.maxsize),
        ((9, 40, 74), (22, 40, 74), sys.maxsize),
        ((9, 17, 75), (22, 40, 74), MEASURED[2] - 1),
        ((9, 41, 52), (22, 40, 74), MEASURED[1] - 1),
        ((30, 17, 52), (22, 40, 74), MEASURED[0] - 1),
    ],
)
def test_pieces_end_where_the_backend_was_measured_to_be_faster(
    pieces: tuple[int, ...], backend: tuple[int, ...], most: int
) -> None:
    assert most_in_pieces(pieces, backend) == most


@pytest.mark.parametrize(
    ("rows", "width", "dtype", "taken"),
    [
        (1, 4096, torch.bfloat16, True),
        (ROWS, 2 * ROW_WORDS, torch.float16, True),
        (ROWS + 1, 4096, torch.bfloat16, False),
        (1, 2 * ROW_WORDS + 2, torch.bfloat16, False),
        (1, 63, torch.bfloat16, False),
        (1, 64, torch.float32, False),
    ],
)
def test_a_sum_is_added_in_one_launch_within_what_all_programs_hold(
    rows: int, width: int, dtype: torch.dtype, taken: bool
) -> None:
    assert adds_at_once(rows, width, dtype) is taken
