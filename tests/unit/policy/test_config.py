"""EngineConfig: equal configurations have equal bytes, and what cannot be read says which field is wrong."""

import json
from typing import Any

import pytest

from graphpod_policy import (
    ConfigError,
    EngineConfig,
    Features,
    GraphRequest,
    ModelConfig,
    Phase,
    config_hash,
    resolve,
)


def config(**changes: Any) -> EngineConfig:
    features, request = Features(), GraphRequest()
    values: dict[str, Any] = {"model": ModelConfig("smollm2", "/model/x"), "dtype": "float32", **changes}
    return EngineConfig.of(features, request, resolve(features, request), **values)


def test_the_bytes_come_back_as_the_same_configuration():
    data = config(kv_cache_bytes=1 << 30).canonical()
    assert EngineConfig.parse(data) == config(kv_cache_bytes=1 << 30)
    assert EngineConfig.parse(data).canonical() == data


def test_the_hash_is_over_the_bytes():
    assert config_hash(config().canonical()) == config_hash(config().canonical())
    assert config_hash(config().canonical()) != config_hash(config(dtype="bfloat16").canonical())
    assert len(config_hash(b"")) == 10


def test_no_decision_text_is_in_the_bytes():
    text = config().canonical().decode()
    for decision in resolve(Features(), GraphRequest()).decisions:
        assert decision.because not in text
        assert decision.hint not in text


def test_the_engine_resolves_the_plan_it_was_given_to_the_same_plan():
    given = config()
    plan = resolve(given.feature_set(), given.planned_request())
    for phase in Phase:
        assert (plan.phases[phase].planned, plan.phases[phase].sizes) == (
            given.phase(phase).planned,
            given.phase(phase).sizes,
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw.pop("dtype"), "field 'dtype' is missing"),
        (lambda raw: raw.update(colour="red"), "unknown field 'colour'"),
        (lambda raw: raw.update(maxBatch="8"), "maxBatch: expected int, found '8'"),
        (lambda raw: raw.update(maxBatch=True), "maxBatch: expected int, found True"),
        (lambda raw: raw.update(pageSize=0), "pageSize: must be at least 1"),
        (lambda raw: raw.update(dtype="float16"), "dtype: 'float16' is not one of float32, bfloat16"),
        (lambda raw: raw["graph"]["prefill"].update(planned="Fast"), "graph.prefill.planned: 'Fast' is not one of"),
        (lambda raw: raw["graph"]["decode"].update(sizes=[4, 2]), "graph.decode.sizes: must ascend"),
        (lambda raw: raw["graph"]["decode"].update(sizes=["a"]), r"graph.decode.sizes\[0\]: expected int"),
    ],
)
def test_bad_input_names_the_field(change: Any, message: str):
    raw = json.loads(config().canonical())
    change(raw)
    with pytest.raises(ConfigError, match=message):
        EngineConfig.parse(json.dumps(raw).encode())


def test_bytes_that_are_not_json_are_refused():
    with pytest.raises(ConfigError, match="not JSON"):
        EngineConfig.parse(b"{")
