"""Our decode kernel compiles for GPUs that are not here, and needs no more shared memory than they have."""

from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.gpu

SHARED = {80: 166_912, 89: 101_376, 90: 232_448, 120: 101_376}
"""Bytes that one program can have, by compute capability (A100, L4 and L40S, H100 and H200, RTX PRO 6000)."""
SIZES = {"bf16": 2, "fp32": 4}
SHAPES = [("bf16", 2, 128), ("bf16", 8, 64), ("bf16", 4, 256), ("bf16", 32, 128), ("fp32", 2, 128), ("fp32", 4, 256)]
"""Type of the activations, query heads of a key head, width."""
POINTERS = {
    **dict.fromkeys(("slots", "tables", "lengths", "hidden"), "*i64"),
    **dict.fromkeys(("sums_of", "extremes_of"), "*fp32"),
    "ended": "*i32",
}
SCALARS = {
    **dict.fromkeys(("scale", "value_scale", "key_inverse", "value_inverse"), "fp32"),
    **dict.fromkeys(("q_stride", "k_stride", "v_stride", "table_stride", "kv_heads", "window"), "i32"),
}
UNALIGNED = {"slots", "tables", "lengths", "hidden", "ended"}


@pytest.fixture(scope="module")
def decode() -> ModuleType:
    """The module can be imported only where torch's build has triton, which its CPU build has not."""
    return import_module("graphpod_runtime.kernels.paged_decode_triton")


def shared_bytes(
    decode: ModuleType,
    capability: int,
    kinds: tuple[str, str],
    heads: tuple[int, int],
    rows: int,
    *,
    trees: bool = False,
) -> int:
    """What the kernel takes for `kinds` of activations and of the cache, `heads` to a key head of some width; with
    `trees` the one that reads masks."""
    triton = import_module("triton")
    compiler, target = import_module("triton.compiler"), import_module("triton.backends.compiler").GPUTarget
    (kind, kv_kind), (group, width), kernel = kinds, heads, decode._attend
    tile = decode.tile_of(rows, width * SIZES[kind], SHARED[capability], quantised=kv_kind != kind)
    types = dict.fromkeys(("q", "k", "v", "out"), f"*{kind}") | dict.fromkeys(("keys", "values"), f"*{kv_kind}")
    types |= POINTERS | SCALARS
    fixed: dict[str, Any] = {
        "page_size": 16,
        "group": group,
        "group_block": max(decode.LEAST_GROUP, group),
        "width": width,
        "width_block": width,
        "quantised": kv_kind != kind,
        "parts": tile.parts,
        "least": tile.least,
        "block": tile.block,
        "even": decode.DECODE_PARTS,
        "middle": decode.MIDDLE,
        "largest_query": decode.LARGEST_QUERY,
        "trees": trees,
        "hideable": decode.HIDEABLE,
    }
    names = kernel.arg_names
    aligned = [name for name, held in types.items() if held.startswith("*") and name not in UNALIGNED]
    source = compiler.ASTSource(
        fn=kernel,
        signature={name: types.get(name, "constexpr") for name in names},
        constexprs={(names.index(name),): value for name, value in fixed.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in (*aligned, "q_stride", "k_stride")},
    )
    options = {"num_warps": tile.warps, "num_stages": tile.stages}
    compiled = triton.compile(source, target=target("cuda", capability, 32), options=options)
    return int(compiled.metadata.shared)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("capability", SHARED)
@pytest.mark.parametrize(("kind", "group", "width"), SHAPES)
def test_decode_fits_the_shared_memory_of_every_gpu(
    decode: ModuleType, capability: int, kind: str, group: int, width: int, rows: int
) -> None:
    assert shared_bytes(decode, capability, (kind, kind), (group, width), rows) <= SHARED[capability]


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("capability", SHARED)
def test_so_does_decode_over_trees(decode: ModuleType, capability: int, rows: int) -> None:
    assert shared_bytes(decode, capability, ("bf16", "bf16"), (2, 128), rows, trees=True) <= SHARED[capability]


@pytest.mark.parametrize("capability", [89, 90, 120])
def test_decode_over_fp8_compiles_from_compute_capability_8_9_on(decode: ModuleType, capability: int) -> None:
    assert shared_bytes(decode, capability, ("bf16", "fp8e4nv"), (2, 128), 1) <= SHARED[capability]


def test_triton_has_no_fp8_for_an_a100(decode: ModuleType) -> None:
    """Why torch decodes there (graphpod_policy/attention.py)."""
    with pytest.raises(Exception, match="fp8e4nv not supported"):
        shared_bytes(decode, 80, ("bf16", "fp8e4nv"), (2, 128), 1)
