"""A kernel that is launched at every step is chosen once for each of its kinds, and launched with all its arguments."""

from collections.abc import Callable
from dataclasses import dataclass, field

from graphpod_runtime.kernels.triton_launch import Launches

Launched = tuple[str, tuple[int, int, int], tuple[object, ...]]


@dataclass
class Kernel:
    """As Triton's: `[grid]` chooses and launches, and gives what was compiled, whose `[grid]` launches."""

    __name__: str
    launched: list[Launched] = field(default_factory=list)

    def __getitem__(self, grid: tuple[int, int, int]) -> Callable[..., object]:
        def launch(*arguments: object, **options: int) -> object:
            how = f"chosen {options}"
            self.launched.append((how, grid, arguments))
            return Compiled(self.launched)

        return launch


@dataclass
class Compiled:
    launched: list[Launched]

    def __getitem__(self, grid: tuple[int, int, int]) -> Callable[..., None]:
        return lambda *arguments: self.launched.append(("launched", grid, arguments))


def test_a_kernel_is_chosen_once_a_kind_and_launched_with_what_each_call_brings() -> None:
    launch, kernel, other = Launches(), Kernel("first"), Kernel("second")
    launch(kernel, (2, 1, 1), (7, True), ("bf16",), num_warps=16)
    launch(kernel, (3, 1, 1), (8, True), ("bf16",), num_warps=16)
    launch(kernel, (3, 1, 1), (9, True), ("fp32",), num_warps=16)
    launch(other, (1, 1, 1), (1,), ("bf16",))
    assert kernel.launched == [
        ("chosen {'num_warps': 16}", (2, 1, 1), (7, True)),
        ("launched", (3, 1, 1), (8, True)),
        ("chosen {'num_warps': 16}", (3, 1, 1), (9, True)),
    ]
    assert other.launched == [("chosen {}", (1, 1, 1), (1,))]


def test_kernels_of_one_owner_are_not_those_of_another() -> None:
    kernel = Kernel("first")
    for launch in (Launches(), Launches()):
        launch(kernel, (1, 1, 1), ())
    assert [how for how, _, _ in kernel.launched] == ["chosen {}"] * 2
