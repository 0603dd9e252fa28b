"""Philox against the known answers that its authors publish (Random123, kat_vectors)."""

import pytest
import torch

from graphpod_runtime.kernels.sampling.draw import philox

KNOWN = [
    (
        "00000000 00000000 00000000 00000000",
        "00000000 00000000",
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    ),
    (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
    ),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter: str, key: str, expected: str) -> None:
    c0, c1, c2, c3 = (torch.tensor([word]) for word in words(counter))
    k0, k1 = (torch.tensor([word]) for word in words(key))
    assert [int(word) for word in philox((c0, c1, c2, c3), (k0, k1))] == words(expected)


def test_many_counters_and_keys_at_once_are_each_one_alone() -> None:
    counters, keys = torch.tensor([[0, 1, 0xFFFFFFFF]]), torch.tensor([[5], [0xDEADBEEF]])
    nothing = torch.zeros(1, 1, dtype=torch.int64)
    together = torch.stack(philox((counters, keys, nothing, nothing), (keys, nothing)), -1)
    assert together.shape == (2, 3, 4)
    for row, key in enumerate(keys):
        for column, counter in enumerate(counters[0]):
            one = philox((counter, key[0], nothing[0, 0], nothing[0, 0]), (key[0], nothing[0, 0]))
            assert [int(word) for word in one] == together[row, column].tolist()
