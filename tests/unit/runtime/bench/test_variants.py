"""The engines that a benchmark of graphs measures."""

from pathlib import Path

from graphpod_policy import Device, Policy, PrefixCache
from graphpod_runtime.bench.figures.variants import NOT, Variant, engine_config
from tests.unit.runtime.bench.samples import WORK


def test_every_round_computes_its_prompts() -> None:
    variant = Variant("breakable", Policy.Breakable, Policy.Full, NOT)
    config = engine_config(variant, Device.Cpu, WORK, Path("model"), "float32", threads=1)
    assert config.prefix_cache is PrefixCache.Off
