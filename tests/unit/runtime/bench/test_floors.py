"""Floors from a model's sizes and a machine's rates."""

import msgspec
import pytest

from graphpod_runtime.bench.figures.floors import Bound, ModelFacts, Rates, decode_floor, prefill_floor

MODEL = ModelFacts("m", "bfloat16", True, vocab=10, parameters=130, body=100, head=20, weight_bytes=2, kv_bytes=8)
RATES = Rates(copy_bytes=60, matmul_operations=400)


def test_a_short_prefill_waits_for_its_weights() -> None:
    floor = prefill_floor(MODEL, RATES, 4)
    assert (floor.seconds, floor.bound) == (pytest.approx(2 * 120 / 60), Bound.Memory)


def test_a_long_prefill_waits_for_arithmetic_and_its_head_runs_for_one_row() -> None:
    floor = prefill_floor(MODEL, RATES, 50)
    assert (floor.seconds, floor.bound) == (pytest.approx(2 * (100 * 50 + 20) / 400), Bound.Arithmetic)


def test_a_decode_step_reads_weights_and_the_keys_and_values_of_every_sequence() -> None:
    floor = decode_floor(MODEL, RATES, batch=3, context=5.5)
    assert (floor.seconds, floor.bound) == (pytest.approx((2 * 120 + 3 * 5.5 * 8) / 60), Bound.Memory)


def test_a_wide_decode_step_waits_for_arithmetic_with_a_head_for_every_row() -> None:
    floor = decode_floor(MODEL, Rates(copy_bytes=1e9, matmul_operations=400), batch=16, context=1)
    assert (floor.seconds, floor.bound) == (pytest.approx(2 * 120 * 16 / 400), Bound.Arithmetic)


def test_the_embedding_table_is_not_read() -> None:
    assert MODEL.read_bytes(7) == 2 * 120


def test_a_row_reads_and_computes_its_chosen_experts_and_many_rows_read_all() -> None:
    """80 of 100 weights are those of experts, of which a row chooses a quarter."""
    mixture = msgspec.structs.replace(MODEL, expert_weights=80, chosen=0.25)
    assert mixture.read_bytes(1) == 2 * (20 + 20 + 20)
    assert mixture.read_bytes(2) == 2 * (20 + 80 * (1 - 0.75**2) + 20)
    assert mixture.read_bytes(1000) == pytest.approx(2 * 120)
    floor = prefill_floor(mixture, RATES, 50)
    assert (floor.seconds, floor.bound) == (pytest.approx(2 * (40 * 50 + 20) / 400), Bound.Arithmetic)


def test_weights_in_fp8_are_read_as_a_byte_each_and_multiplied_at_twice_the_rate() -> None:
    fp8 = msgspec.structs.replace(MODEL, fp8=80)
    assert fp8.held_bytes == 2 * 50 + 80
    assert fp8.read_bytes(7) == 2 * 40 + 80
    floor = prefill_floor(fp8, RATES, 50)
    assert (floor.seconds, floor.bound) == (pytest.approx(2 * (60 * 50 + 20) / 400), Bound.Arithmetic)
