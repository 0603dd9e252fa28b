"""Patterns of checkpoints are matched in a bounded time, or refused."""

import pytest

from graphpod_policy.model.fp8_scheme import SchemeNotBuilt, scheme_of
from graphpod_policy.model.name_pattern import may_backtrack


@pytest.mark.parametrize(
    "pattern",
    [
        ".*lm_head",
        r"model\.layers\.\d+\.mlp\.(gate|up)_proj",
        ".*self_attn.*",
        "visual.*",
        "(?:model|vision).*gate$",
        r"[^]*+(]*\(a\)+",
        ".*?mlp.*?gate.*?",
        r"model\.layers\.(0|1|2|3|4|5|6|7|8|9|10|11|12)\.(q|k|v)?_proj",
    ],
)
def test_what_checkpoints_use_is_matched(pattern: str) -> None:
    assert may_backtrack(pattern) is None


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*b", "(?:a?a)*b", "((a+)b)+", "(a{1,9}){2,}", "(?=(a*)*)b", "(x(a|b)y)+"]
)
def test_a_repeat_of_what_repeats_or_chooses_is_refused(pattern: str) -> None:
    assert may_backtrack(pattern) == "it repeats a group that repeats or chooses"


@pytest.mark.parametrize("pattern", [".?" * 60 + "!", "(.|..)" * 13, r"x\??" * 13])
def test_many_choices_next_to_each_other_are_refused(pattern: str) -> None:
    assert may_backtrack(pattern) == "its choices have more than 4096 combinations"


def test_many_repeats_are_refused() -> None:
    assert may_backtrack(".*a.*b.*c.*d") == "it has more than 3 repeats"


def test_a_checkpoint_that_ignores_by_such_a_pattern_is_refused_by_it() -> None:
    config = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    with pytest.raises(SchemeNotBuilt, match="may take very long to match: it repeats a group"):
        scheme_of(config | {"ignored_layers": ["re:(a+)+$"]})
