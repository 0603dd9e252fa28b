"""The header of a safetensors file and an engine's configuration, whose author may write anything."""

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from graphpod_policy import ConfigError, EngineConfig, GraphConfig, ModelConfig, PhasePlan, Policy
from graphpod_runtime.streaming.headers import LENGTH, header
from graphpod_sources.listing import RemoteFile
from graphpod_sources.problem import Problem
from tests.scribbles import DEEP, LONG, put, read_or, scribbled

ENTRIES = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]},
    "b": {"dtype": "F32", "shape": [], "data_offsets": [8, 12]},
}


class Held:
    """A source that has one file."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self, file: RemoteFile, start: int, end: int | None) -> Iterator[memoryview]:
        yield memoryview(self.content)[start:end]


def is_read_or_refused(text: bytes, length: int | None = None) -> None:
    content = (len(text) if length is None else length).to_bytes(LENGTH, "little") + text + bytes(12)
    file = RemoteFile("model.safetensors", len(content), "a")
    with read_or(Problem):
        for one in header(Held(content), file):  # type: ignore[arg-type]
            assert LENGTH <= one.start <= one.end <= len(content)


@given(scribbled(ENTRIES))
@example(put(ENTRIES, ("a", "shape"), {"": 1}))
@example(put(ENTRIES, ("a", "shape"), [1 << 49] * 16))
@example(put(ENTRIES, ("a", "data_offsets"), [8, 0]))
@example(put(ENTRIES, ("a", "data_offsets", 1), float("inf")))
@example(put(ENTRIES, ("a", "dtype"), []))
def test_a_header_may_hold_anything(entries: Any) -> None:
    is_read_or_refused(json.dumps(entries).encode())


@given(st.binary(max_size=60), st.integers(0, 2**64 - 1) | st.none())
@example(DEEP.encode(), None)
@example(LONG.encode(), None)
@example(b"", 2**64 - 1)
@example(b"\xff", None)
def test_a_header_may_be_any_bytes(text: bytes, length: int | None) -> None:
    is_read_or_refused(text, length)


ENGINE = json.loads(
    EngineConfig(
        model=ModelConfig("m", "/model"),
        dtype="float32",
        max_model_len=64,
        max_batch=4,
        prefill_chunk=16,
        page_size=16,
        graph=GraphConfig(
            PhasePlan(Policy.Auto, Policy.Breakable, (4, 8)), PhasePlan(Policy.Auto, Policy.Full, (1, 2))
        ),
    ).canonical()
)


@given(scribbled(ENGINE).map(json.dumps))
@example(DEEP)
@example(LONG)
@example(json.dumps(put(ENGINE, ("maxBatch",), float("inf"))))
@example(json.dumps(put(ENGINE, ("model", "name"), "\ud800")))
def test_an_engine_s_configuration_may_be_anything(text: str) -> None:
    with read_or(ConfigError):
        config = EngineConfig.parse(text.encode())
        assert EngineConfig.parse(config.canonical()) == config
