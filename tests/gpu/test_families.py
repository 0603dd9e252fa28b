"""Every family on a GPU as on the CPU, graphs and FP8 KV caches included: the CPU's tests, with a GPU's engines."""

from tests.unit.runtime.engine.test_attention_choice import (  # noqa: F401
    test_graphs_over_an_fp8_cache_give_the_tokens_of_eager,
    test_scales_matter_and_good_ones_lose_little,
)
from tests.unit.runtime.engine.test_families import test_graphs_give_the_tokens_of_eager  # noqa: F401
from tests.unit.runtime.models.test_families import test_logits_of_every_family_equal_transformers  # noqa: F401
