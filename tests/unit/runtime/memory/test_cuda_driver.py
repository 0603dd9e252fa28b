"""What the driver's calls do when one of them fails, over a library of words."""

from typing import Any

import pytest
import torch

from graphpod_runtime.memory import cuda_driver
from graphpod_runtime.memory.cuda_driver import OUT_OF_MEMORY, CudaDriver, DriverError

NOT_SUPPORTED = 801


class Library:
    """Notes calls; the one that `fails` names returns its code."""

    def __init__(self, fails: dict[str, int]) -> None:
        self.fails, self.calls = fails, list[str]()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            return self.fails.get(name, 0)

        return call


@pytest.mark.parametrize(
    ("name", "undone"),
    [("cuMemCreate", []), ("cuMemMap", ["cuMemRelease"]), ("cuMemSetAccess", ["cuMemUnmap", "cuMemRelease"])],
)
@pytest.mark.parametrize(("code", "error"), [(OUT_OF_MEMORY, torch.OutOfMemoryError), (NOT_SUPPORTED, DriverError)])
def test_a_map_that_fails_leaves_nothing(
    name: str, undone: list[str], code: int, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library({name: code})
    monkeypatch.setattr(cuda_driver, "_library", lambda: library)
    driver = CudaDriver(0)
    with pytest.raises(error, match=name):
        driver.map(1 << 21, 1 << 21)
    after = library.calls[library.calls.index(name) + 1 :]
    assert [each for each in after if each != "cuGetErrorString"] == undone
