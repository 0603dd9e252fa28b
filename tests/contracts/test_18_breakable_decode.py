"""Breakable decode runs every cell of the truth matrix and every row of the benchmark that Full runs: what is only a
fallback must not be what nobody tries.
"""

from dataclasses import replace

from graphpod_policy import CompileMode, Policy
from graphpod_runtime.bench.figures.variants import VARIANTS
from truth.axes import variants


def test_the_truth_matrix_has_breakable_decode_beside_every_prefill_that_has_full() -> None:
    full = [one for one in variants() if one.decode is Policy.Full and one.compile is CompileMode.Nothing]
    assert len(full) >= 3
    assert {replace(one, decode=Policy.Breakable) for one in full} <= set(variants())


def test_the_truth_matrix_has_breakable_decode_with_compiled_layers() -> None:
    compiled = {one.decode for one in variants() if one.compile is CompileMode.Inductor}
    assert {Policy.Full, Policy.Breakable} <= compiled


def test_every_way_of_compiling_that_full_is_measured_with_breakable_decode_is_measured_with() -> None:
    def ways(decode: Policy) -> set[CompileMode]:
        return {one.compile for one in VARIANTS.values() if one.decode is decode}

    assert ways(Policy.Full) == ways(Policy.Breakable) == {CompileMode.Nothing, CompileMode.Inductor}
