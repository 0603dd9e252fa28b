"""EngineConfig: equal configurations have equal bytes, and what cannot be read says which field is wrong."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from graphpod_policy import (
    CompileMode,
    ConfigError,
    EngineConfig,
    Facts,
    FeatureConfig,
    Features,
    GraphRequest,
    KvCacheDtype,
    ModelConfig,
    OnCaptureFailure,
    OnUnsupported,
    Phase,
    Policy,
    PrefixCache,
    ReasoningParser,
    ServingConfig,
    ToolParser,
    config_hash,
    refine,
    resolve,
)
from graphpod_policy.limits import MOST_BATCH, MOST_CONTEXT, MOST_SIZES


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
        (lambda raw: raw.update(dtype="int8"), "dtype: 'int8' is not one of float32, bfloat16, float16"),
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


def test_the_engine_starts_from_the_operators_plan_and_what_the_user_asked() -> None:
    request = GraphRequest(decode=Policy.Full, on_unsupported=OnUnsupported.Fail)
    plan = resolve(Features(), request)
    given = EngineConfig.of(Features(), request, plan, model=ModelConfig("m", "/m"), dtype="float32")
    started = EngineConfig.parse(given.canonical()).resolved()
    assert started.phases == plan.phases
    assert (started.compile, started.prefill_chunk, started.duties) == (plan.compile, plan.prefill_chunk, plan.duties)
    assert started.request.on_unsupported is OnUnsupported.Fail
    broken = Facts(attention_layers=1, configured_layers=2)
    refused = refine(started, broken).refused
    assert refused is not None, "decode was asked for by name"
    assert refused.phase is Phase.Decode
    automatic = EngineConfig.of(
        Features(), GraphRequest(), resolve(Features(), GraphRequest()), model=ModelConfig("m", "/m"), dtype="float32"
    )
    assert refine(automatic.resolved(), broken).refused is None


def test_what_is_not_used_is_not_written() -> None:
    """A feature that a later version learns changes no bytes of a service without it."""
    raw = json.loads(config().canonical())
    assert raw["features"] == {}
    used = Features(tensor=2, lora=("a",), kv_cache_dtype=KvCacheDtype.Fp8)
    given = EngineConfig.of(
        used, GraphRequest(), resolve(used, GraphRequest()), model=ModelConfig("m", "/m"), dtype="float32"
    )
    assert json.loads(given.canonical())["features"] == {"tensor": 2, "lora": ["a"], "kvCacheDtype": "Fp8"}
    assert EngineConfig.parse(given.canonical()).feature_set() == replace(used, prefill_chunk=256)


def test_every_feature_is_in_the_engines_configuration() -> None:
    own = {"max_model_len", "max_batch", "prefill_chunk"}
    assert {row.name for row in fields(FeatureConfig)} | own == {row.name for row in fields(Features)}
    for row in fields(FeatureConfig):
        assert row.default == getattr(Features(), row.name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw["features"].update(tensor="2"), "features.tensor: expected int, found '2'"),
        (lambda raw: raw["features"].update(wings=2), "features: unknown field 'wings'; this engine reads allToAll"),
        (lambda raw: raw.update(kvCacheBytes="1"), "kvCacheBytes: expected int, found '1'"),
        (lambda raw: raw.update(graph=[]), r"graph: expected an object, found \[\]"),
        (lambda raw: raw["graph"]["prefill"].update(sizes=4), "graph.prefill.sizes: expected a list, found 4"),
        (lambda raw: raw["graph"]["prefill"].update(sizes=[4, 4]), "graph.prefill.sizes: must ascend without repeats"),
        (lambda raw: raw["graph"]["prefill"].update(sizes=[0, 4]), "must have sizes from 1 to 1048576, has 0"),
        (lambda raw: raw["graph"]["decode"].update(sizes=list(range(1, 2092))), "must have 1 to 128 sizes, has 2091"),
        (
            lambda raw: raw["graph"]["decode"].update(sizes=[1, 2**20 + 1]),
            "must have sizes from 1 to 1048576, has 1048577",
        ),
        (lambda raw: raw.update(maxModelLen=0), "maxModelLen: must be at least 1, is 0"),
        (lambda raw: raw.update(prefillChunk=0), "prefillChunk: must be at least 1, is 0"),
        (lambda raw: raw.update(maxBatch=0), "maxBatch: must be at least 1, is 0"),
        (lambda raw: raw.update(maxBatch=10**23), f"maxBatch: must be at most 1048576, is {10**23}"),
        (lambda raw: raw.update(maxModelLen=2**20 + 1), "maxModelLen: must be at most 1048576, is 1048577"),
        (lambda raw: raw.update(pageSize=257), "pageSize: must be at most 256, is 257"),
    ],
)
def test_a_value_of_the_wrong_kind_names_its_place(change: Any, message: str) -> None:
    raw = json.loads(config().canonical())
    change(raw)
    with pytest.raises(ConfigError, match=message):
        EngineConfig.parse(json.dumps(raw).encode())


def test_the_longest_ladder_of_a_plan_is_read() -> None:
    """Of the largest prefill chunk: no longer than what a user may write, and than what is advised on."""
    features = Features(prefill_chunk=MOST_CONTEXT, max_batch=MOST_BATCH)
    plan = resolve(features, GraphRequest())
    given = EngineConfig.of(features, GraphRequest(), plan, model=ModelConfig("m", "/m"), dtype="float32")
    assert 0.9 * MOST_SIZES < len(given.graph.prefill.sizes) <= MOST_SIZES
    assert len(given.graph.decode.sizes) <= MOST_SIZES
    assert EngineConfig.parse(given.canonical()) == given


def test_text_outside_a_configuration_is_called_that() -> None:
    with pytest.raises(ConfigError, match=r"^engine.json: expected an object, found \[\]$"):
        EngineConfig.parse(b"[]")


def test_the_bytes_are_canonical() -> None:
    data = EngineConfig.of(
        Features(), GraphRequest(), resolve(Features(), GraphRequest()), model=ModelConfig("ä", "/m"), dtype="float32"
    ).canonical()
    assert data.startswith(b'{"dtype":"float32","features":{},"graph":{"compile":"None","decode":{')
    assert '"model":{"name":"ä","path":"/m"}'.encode() in data
    assert config_hash(b"abc") == "ba7816bf8f"


def test_the_plan_as_a_request_of_the_engine_says_everything() -> None:
    request = GraphRequest(
        prefill=Policy.Disabled, decode_sizes=(1, 4), on_unsupported=OnUnsupported.Fail,
        on_capture_failure=OnCaptureFailure.Fail,
    )  # fmt: skip
    features = Features(max_model_len=300, max_batch=5, prefill_chunk=70)
    given = EngineConfig.of(
        features, request, resolve(features, request), model=ModelConfig("m", "/m"), dtype="bfloat16", page_size=8,
        kv_cache_bytes=7, threads=3, serving=ServingConfig(9, 8),
    )  # fmt: skip
    assert given.planned_request() == GraphRequest(
        prefill=Policy.Disabled, decode=Policy.Full, prefill_sizes=None, decode_sizes=(1, 4),
        compile=CompileMode.Nothing, on_unsupported=OnUnsupported.Degrade, on_capture_failure=OnCaptureFailure.Fail,
    )  # fmt: skip
    assert given.feature_set() == features
    assert given.graph.on_unsupported is OnUnsupported.Fail
    assert (given.page_size, given.kv_cache_bytes, given.threads, given.dtype) == (8, 7, 3, "bfloat16")
    assert (given.max_model_len, given.max_batch, given.prefill_chunk) == (300, 5, 70)
    assert given.serving == ServingConfig(max_queue=9, drain_seconds=8)
    assert given.model == ModelConfig(name="m", path="/m")
    assert given.phase(Phase.Prefill).planned is Policy.Disabled
    assert given.phase(Phase.Decode).sizes == (1, 4)
    assert config().page_size == 16
    assert config().serving == ServingConfig()


@pytest.mark.parametrize("name", ["max_model_len", "max_batch", "prefill_chunk", "page_size"])
def test_one_is_enough(name: str) -> None:
    assert getattr(replace(config(), **{name: 1}), name) == 1


def test_an_optional_value_may_be_absent_as_null_only() -> None:
    raw = json.loads(config(threads=2).canonical())
    raw["threads"] = None
    assert EngineConfig.parse(json.dumps(raw).encode()).threads is None
    raw["features"] = {"speculative": None, "deterministic": True, "hostCacheBytes": 5}
    assert EngineConfig.parse(json.dumps(raw).encode()).features == FeatureConfig(
        deterministic=True, host_cache_bytes=5
    )


def test_parsers_that_the_chat_template_chooses_change_no_bytes() -> None:
    plain = json.loads(config().canonical())["serving"]
    assert not {"toolParser", "reasoningParser"} & plain.keys(), "the hashes of services from before stay"
    given = config(serving=ServingConfig(tool_parser=ToolParser.Hermes, reasoning_parser=ReasoningParser.Off))
    raw = json.loads(given.canonical())["serving"]
    assert (raw["toolParser"], raw["reasoningParser"]) == ("Hermes", "None")
    assert EngineConfig.parse(given.canonical()) == given


def test_what_is_left_to_the_engine_of_cache_and_schedule_changes_no_bytes() -> None:
    plain = json.loads(config().canonical())
    assert not {"prefixCache", "prefillBudget"} & plain.keys(), "the hashes of services from before stay"
    given = config(prefix_cache=PrefixCache.Off, prefill_budget=64)
    raw = json.loads(given.canonical())
    assert (raw["prefixCache"], raw["prefillBudget"]) == ("Off", 64)
    assert EngineConfig.parse(given.canonical()) == given
    assert EngineConfig.parse(config().canonical()).prefix_cache is PrefixCache.Auto
