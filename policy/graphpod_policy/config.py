"""EngineConfig: exactly what the engine reads, and the bytes its hash is taken over.

The operator writes the canonical bytes into an immutable ConfigMap named after their hash; the engine reads the
same bytes and answers with the same hash. Nothing that does not change the engine belongs here: no decisions, no
hints, no budgets, no resolver revision.
"""

import hashlib
import json
import re
import types
import typing
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from typing import Any, ClassVar

from graphpod_policy.dtype import DTYPE_BYTES
from graphpod_policy.enums import (
    AllToAll,
    AttentionBackend,
    CompileMode,
    Device,
    KvCacheDtype,
    OnCaptureFailure,
    OnUnsupported,
    Phase,
    PrefixCache,
    Quantization,
    ReasoningParser,
    Role,
    SpeculativeMethod,
    ToolParser,
)
from graphpod_policy.features import Features, GraphRequest
from graphpod_policy.limits import MOST_CONTEXT, MOST_PAGE, own_ladder
from graphpod_policy.model.shown import shown
from graphpod_policy.plan import PhasePlan, Plan
from graphpod_policy.resolution.resolve import cut_by_budget, resolve


class ConfigError(ValueError):
    """engine.json is not what this engine reads; the message names the field and says what is expected."""


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """Where weights are read from at each start, without a disk between. The file `hosts` lists the hosts that may be
    connected to, as JSON; without one all may be.
    """

    SPARSE: ClassVar[tuple[str, ...]] = ("hosts",)

    uri: str
    hosts: str = ""


STREAM_HOSTS = "/model/.sources/hosts.json"
"""The file `hosts` in a pod."""
STREAM_CREDENTIALS = "/model/.credentials"
"""The folder of a mounted Secret, a file for each key."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The model: the name clients ask for, and the folder that holds its files; of a `stream`, all but its weights."""

    SPARSE: ClassVar[tuple[str, ...]] = ("stream",)

    name: str
    path: str
    stream: StreamConfig | None = None


@dataclass(frozen=True, slots=True)
class GraphConfig:
    """The graph policy the engine starts from. `prefill_cut`: as in GraphRequest."""

    SPARSE: ClassVar[tuple[str, ...]] = ("prefill_cut",)

    prefill: PhasePlan
    decode: PhasePlan
    compile: CompileMode = CompileMode.Nothing
    on_unsupported: OnUnsupported = OnUnsupported.Degrade
    on_capture_failure: OnCaptureFailure = OnCaptureFailure.Degrade
    prefill_cut: bool = False


@dataclass(frozen=True, slots=True)
class FeatureConfig:
    """The features in use, as in `Features`; the engine refuses to start with one it does not have.

    What is not used is not written: a feature that a later version learns changes no bytes of a service without it.
    """

    SPARSE: ClassVar[bool] = True

    device: Device = Device.Cpu
    gpus: int = 0
    nodes: int = 1
    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1
    context: int = 1
    all_to_all: AllToAll | None = None
    two_batch_overlap: bool = False
    expert_rebalancing: bool = False
    symmetric_memory: bool = False
    speculative: SpeculativeMethod | None = None
    speculative_steps: int = 3
    speculative_topk: int = 1
    speculative_draft_tokens: int | None = None
    speculative_max_batch: int | None = None
    speculative_draft: str | None = None
    host_cache_bytes: int | None = None
    host_cache_folder: str | None = None
    host_cache_file_bytes: int | None = None
    cpu_offload_bytes: int | None = None
    cpu_offload_staging: bool = False
    lora: tuple[str, ...] = ()
    quantization: Quantization | None = None
    kv_cache_dtype: KvCacheDtype = KvCacheDtype.Auto
    attention: AttentionBackend = AttentionBackend.Auto
    full_compile: bool = False
    deterministic: bool = False
    sleep: bool = False
    sleep_after_seconds: int | None = None
    reload: bool = False
    role: Role = Role.Both

    @property
    def ranks(self) -> int:
        """Processes that run one model together."""
        return self.tensor * self.pipeline

    @property
    def ranks_of_node(self) -> int:
        """Those of one machine; all have as many."""
        return max(1, self.ranks // self.nodes)


@dataclass(frozen=True, slots=True)
class ServingConfig:
    """Limits of the front: requests that may wait, and seconds that open ones get after SIGTERM; whether the API port
    serves /metrics, too; how answers are read.
    """

    SPARSE: ClassVar[tuple[str, ...]] = ("http_metrics", "tool_parser", "reasoning_parser")

    max_queue: int = 256
    drain_seconds: int = 30
    http_metrics: bool = True
    tool_parser: ToolParser = ToolParser.Auto
    reasoning_parser: ReasoningParser = ReasoningParser.Auto


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """One engine. `dtype` is of weights and activations (None: Auto, see `dtype`). `max_model_len`, `prefill_chunk` and
    `page_size` are tokens, `max_batch` is sequences (None: Auto, derived by each pod, see `limits`). `kv_cache_bytes`
    is bytes (None: what is free after capture), `threads` compute threads (None: as many as the container may use).
    `prefill_budget` is the tokens of a prefill pass between two decode passes (None: Auto, derived by each pod).
    """

    model: ModelConfig
    dtype: str | None
    max_model_len: int | None
    max_batch: int | None
    prefill_chunk: int
    page_size: int
    graph: GraphConfig
    kv_cache_bytes: int | None = None
    threads: int | None = None
    features: FeatureConfig = field(default_factory=FeatureConfig)
    serving: ServingConfig = field(default_factory=ServingConfig)
    prefix_cache: PrefixCache = PrefixCache.Auto
    prefill_budget: int | None = None

    SPARSE: ClassVar[tuple[str, ...]] = ("prefix_cache", "prefill_budget")
    DTYPES: ClassVar[tuple[str, ...]] = tuple(DTYPE_BYTES)
    MOST: ClassVar[dict[str, int]] = {
        "max_model_len": MOST_CONTEXT,
        "max_batch": MOST_CONTEXT,  # a ladder of the user's own may hold more than the field
        "prefill_chunk": MOST_CONTEXT,
        "page_size": MOST_PAGE,
        "prefill_budget": MOST_CONTEXT,
    }
    """The bounds of the API, for what comes by a command line or from Python."""

    def __post_init__(self) -> None:
        if self.dtype is not None and self.dtype not in self.DTYPES:
            raise ConfigError(f"dtype: {shown(self.dtype)} is not one of {', '.join(self.DTYPES)}")
        for name, most in self.MOST.items():
            if (value := getattr(self, name)) is not None and not 1 <= value <= most:
                raise ConfigError(
                    f"{_camel(name)}: must be {'at least 1' if value < 1 else f'at most {most}'}, is {value}"
                )
        for phase in Phase:
            sizes = self.phase(phase).sizes
            try:
                ascends = not sizes or sizes == own_ladder(sizes)
            except ValueError as error:
                raise ConfigError(f"graph.{phase}.sizes: {error}") from None
            if not ascends:
                raise ConfigError(f"graph.{phase}.sizes: must ascend without repeats, is {list(sizes)}")

    @classmethod
    def of(
        cls,
        features: Features,
        request: GraphRequest,
        plan: Plan,
        *,
        model: ModelConfig,
        dtype: str | None,
        page_size: int = 16,
        kv_cache_bytes: int | None = None,
        threads: int | None = None,
        serving: ServingConfig | None = None,
        prefix_cache: PrefixCache = PrefixCache.Auto,
        prefill_budget: int | None = None,
    ) -> "EngineConfig":
        """The engine's part of a resolved plan."""
        return cls(
            model=model,
            dtype=dtype,
            max_model_len=features.max_model_len,
            max_batch=features.max_batch,
            prefill_chunk=plan.prefill_chunk,
            page_size=page_size,
            graph=GraphConfig(
                prefill=plan.phases[Phase.Prefill],
                decode=plan.phases[Phase.Decode],
                compile=plan.compile,
                on_unsupported=request.on_unsupported,
                on_capture_failure=request.on_capture_failure,
                prefill_cut=request.prefill_cut or cut_by_budget(plan),
            ),
            kv_cache_bytes=kv_cache_bytes,
            threads=threads,
            features=FeatureConfig(**{name: getattr(features, name) for name in _FEATURE_NAMES}),
            serving=serving or ServingConfig(),
            prefix_cache=prefix_cache,
            prefill_budget=prefill_budget,
        )

    @property
    def element(self) -> str:
        """`dtype` of a configuration whose Auto is settled; ValueError for another."""
        if self.dtype is None:
            raise ValueError("dtype is Auto: a start settles it first")
        return self.dtype

    def phase(self, phase: Phase) -> PhasePlan:
        """The planned policy of `phase`."""
        return self.graph.prefill if phase is Phase.Prefill else self.graph.decode

    def rows(self, phase: Phase) -> tuple[int, ...]:
        """The planned sizes of `phase` as rows of a pass."""
        width = self.feature_set().verify_width if phase is Phase.Decode else 1
        return tuple(size * width for size in self.phase(phase).sizes)

    def feature_set(self) -> Features:
        """What the resolver sees of this configuration."""
        return Features(
            max_model_len=self.max_model_len,
            max_batch=self.max_batch,
            prefill_chunk=self.prefill_chunk,
            **{name: getattr(self.features, name) for name in _FEATURE_NAMES},
        )

    def planned_request(self) -> GraphRequest:
        """The plan as an explicit request, so that the engine's own resolution starts where the operator's ended."""
        prefill, decode = self.graph.prefill, self.graph.decode
        return GraphRequest(
            prefill=prefill.planned,
            decode=decode.planned,
            prefill_sizes=prefill.sizes or None,
            decode_sizes=decode.sizes or None,
            compile=self.graph.compile,
            on_unsupported=OnUnsupported.Degrade,
            on_capture_failure=self.graph.on_capture_failure,
            prefill_cut=self.graph.prefill_cut,
        )

    def resolved(self) -> Plan:
        """The plan that the engine starts from: the operator's plan and the user's request. How layers are
        compiled is taken as it stands: a rule speaks of the image's compiler, and the engine may run outside of one.
        """
        request = self.planned_request()
        plan = resolve(self.feature_set(), replace(request, compile=CompileMode.Nothing))
        phases = {phase: replace(row, requested=self.phase(phase).requested) for phase, row in plan.phases.items()}
        request = replace(request, on_unsupported=self.graph.on_unsupported)
        return replace(plan, phases=phases, request=request, compile=self.graph.compile)

    def canonical(self) -> bytes:
        """Canonical JSON: sorted keys, no spaces, UTF-8. Equal configurations have equal bytes."""
        return json.dumps(_plain(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def parse(cls, data: bytes) -> "EngineConfig":
        """The configuration in `data`. ConfigError names a field that is missing, unknown or of the wrong type."""
        try:
            raw = json.loads(data)
        except ValueError as error:
            raise ConfigError(f"engine.json is not JSON: {error}") from error
        except RecursionError as error:
            raise ConfigError("engine.json is nested too deeply") from error
        parsed = _typed(cls, raw, "")
        assert isinstance(parsed, cls)
        return parsed


HALF = re.compile("[\ud800-\udfff]")
"""JSON can spell it, and no file can hold it."""
_FEATURE_NAMES = tuple(row.name for row in fields(FeatureConfig))


def config_hash(data: bytes) -> str:
    """The name of these bytes: the first 10 hex digits of their SHA-256."""
    return hashlib.sha256(data).hexdigest()[:10]


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _sparse(kind: Any) -> set[str]:
    """Fields that are written only where they differ from their default."""
    names: bool | tuple[str, ...] = getattr(kind, "SPARSE", ())
    return {row.name for row in fields(kind)} if names is True else set(names or ())


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        sparse = _sparse(type(value))
        return {
            _camel(row.name): _plain(given)
            for row in fields(value)
            if (given := getattr(value, row.name)) != row.default or row.name not in sparse
        }
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.value if isinstance(value, Enum) else value


def _typed(kind: Any, raw: Any, path: str) -> Any:
    """`raw` as a value of the annotated type `kind`; `path` is the field's name for errors."""
    where = path or "engine.json"
    if is_dataclass(kind):
        if not isinstance(raw, dict):
            raise ConfigError(f"{where}: expected an object, found {shown(raw)}")
        hints = typing.get_type_hints(kind)
        names = {_camel(row.name): row.name for row in fields(kind)}
        if unknown := sorted(raw.keys() - names.keys()):
            raise ConfigError(
                f"{where}: unknown field {shown(unknown[0])}; this engine reads {', '.join(sorted(names))}"
            )
        needed = {name for name, field_name in names.items() if field_name not in _sparse(kind)}
        if missing := sorted(needed - raw.keys()):
            raise ConfigError(f"{where}: field {missing[0]!r} is missing")
        prefix = f"{path}." if path else ""
        return kind(**{names[key]: _typed(hints[names[key]], entry, prefix + key) for key, entry in raw.items()})  # type: ignore[operator]
    origin = typing.get_origin(kind)
    if origin is tuple:
        if not isinstance(raw, list):
            raise ConfigError(f"{where}: expected a list, found {shown(raw)}")
        item = typing.get_args(kind)[0]
        return tuple(_typed(item, entry, f"{where}[{index}]") for index, entry in enumerate(raw))
    if origin in (types.UnionType, typing.Union):
        if raw is None:
            return None
        return _typed(next(arg for arg in typing.get_args(kind) if arg is not types.NoneType), raw, path)
    if issubclass(kind, Enum):
        try:
            return kind(raw)
        except ValueError:
            raise ConfigError(
                f"{where}: {shown(raw)} is not one of {', '.join(str(member.value) for member in kind)}"
            ) from None
    if not isinstance(raw, kind) or (kind is int and isinstance(raw, bool)):
        raise ConfigError(f"{where}: expected {kind.__name__}, found {shown(raw)}")
    if isinstance(raw, str) and HALF.search(raw):
        raise ConfigError(f"{where}: half a surrogate pair in {shown(raw)}")
    return raw
