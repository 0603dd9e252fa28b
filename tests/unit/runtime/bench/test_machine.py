"""Sizes of a model that floors are made of."""

from pathlib import Path
from typing import Any

import pytest

from graphpod_runtime.bench.machine import model_facts
from tests.unit.policy.test_weight_form import READ
from truth.models import BASE, Subject

SIZES: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 32, "num_attention_heads": 4}
WHOLE = BASE | SIZES | {"architectures": ["LlamaForCausalLM"], "num_key_value_heads": 4, "num_hidden_layers": 2}
MATRICES = 2 * (4 * 128 * 128 + 3 * 128 * 256)


@pytest.mark.parametrize("form", READ)
def test_weights_in_fp8_count_as_many_as_plain_ones_and_take_a_byte_each(tmp_path: Path, form: str) -> None:
    plain, fp8 = (
        model_facts(Subject(name, "LlamaForCausalLM", WHOLE | more).folder(tmp_path), "bfloat16", random=True)
        for name, more in (("plain", {}), ("fp8", {"quantization_config": READ[form]}))
    )
    assert (fp8.parameters, fp8.body) == (plain.parameters, plain.body)
    assert (plain.fp8, fp8.fp8) == (0, MATRICES)
    assert plain.held_bytes - fp8.held_bytes == plain.read_bytes(1) - fp8.read_bytes(1) == MATRICES
