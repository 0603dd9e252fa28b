"""What a service asks of its engine, as far as graphs care, and which of it the engine really has."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from graphpod_policy.words import (
    AllToAll,
    AttentionBackend,
    CompileMode,
    Device,
    KvCacheDtype,
    OnCaptureFailure,
    OnUnsupported,
    Phase,
    Policy,
    Quantization,
    Role,
    SpeculativeMethod,
)


@dataclass(frozen=True, slots=True)
class Features:
    """The features of one service, as its spec says them. A default means: not used.

    `max_model_len` is in tokens (prompt and answer), `max_batch` in sequences that decode together,
    `prefill_chunk` in tokens of one prefill pass (None: the largest prefill size); sizes ending in `_bytes`
    are bytes; `tensor` to `context` count devices or parts, 1 means undivided; `gpus` are those of one pod.
    """

    device: Device = Device.Cpu
    gpus: int = 0
    nodes: int = 1
    max_model_len: int = 2048
    max_batch: int = 8
    prefill_chunk: int | None = None

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    """Data-parallel attention ranks."""
    expert: int = 1
    context: int = 1
    """Parts one sequence is split into."""
    all_to_all: AllToAll | None = None
    two_batch_overlap: bool = False
    expert_rebalancing: bool = False
    symmetric_memory: bool = False

    speculative: SpeculativeMethod | None = None
    speculative_steps: int = 3
    """Draft tokens proposed in one pass."""
    speculative_topk: int = 1
    """Branches kept at each draft step."""
    host_cache_bytes: int | None = None
    cpu_offload_bytes: int | None = None
    cpu_offload_staging: bool = False
    """Offloaded weights are copied from pinned memory to fixed staging addresses."""
    lora: tuple[str, ...] = ()
    quantization: Quantization | None = None
    kv_cache_dtype: KvCacheDtype = KvCacheDtype.Auto
    attention: AttentionBackend = AttentionBackend.Auto
    full_compile: bool = False
    """The whole model through torch.compile (`graph.compile` compiles the halves of a layer instead)."""
    deterministic: bool = False
    sleep: bool = False
    """Weights and cache leave the device while idle and come back at their addresses."""
    role: Role = Role.Both

    @property
    def verify_width(self) -> int:
        """Tokens of one sequence in a decode pass: 1, or the draft and the token before it."""
        return 1 if self.speculative is None else self.speculative_steps * self.speculative_topk + 1


@dataclass(frozen=True, slots=True)
class GraphRequest:
    """What the user wrote under `spec.graph`. Sizes None: the default ladder. `budget_bytes` and `budget_seconds` are
    what the captures of both phases may take together; None: what the ladders take.
    """

    prefill: Policy = Policy.Auto
    decode: Policy = Policy.Auto
    prefill_sizes: tuple[int, ...] | None = None
    decode_sizes: tuple[int, ...] | None = None
    compile: CompileMode = CompileMode.Auto
    budget_bytes: int | None = None
    budget_seconds: int | None = None
    on_unsupported: OnUnsupported = OnUnsupported.Degrade
    on_capture_failure: OnCaptureFailure = OnCaptureFailure.Degrade

    def policy(self, phase: Phase) -> Policy:
        """The policy asked for `phase`."""
        return self.prefill if phase is Phase.Prefill else self.decode

    def sizes(self, phase: Phase) -> tuple[int, ...] | None:
        """The sizes asked for `phase`."""
        return self.prefill_sizes if phase is Phase.Prefill else self.decode_sizes


BUILT_POLICIES: dict[Phase, tuple[Policy, ...]] = {
    Phase.Prefill: (Policy.Breakable, Policy.Disabled),
    Phase.Decode: (Policy.Full, Policy.Breakable, Policy.Disabled),
}
"""The policies this version's engine can run."""


class Feature(NamedTuple):
    """One row of the feature table."""

    name: str
    field: str
    """Path in the API, as the user wrote it."""
    built: bool
    asked: Callable[[Features], object]
    """A true value when the feature is in use; it is shown to the user."""


FEATURES: tuple[Feature, ...] = (
    Feature("CPU", "spec.resources", True, lambda f: f.device is Device.Cpu),
    Feature("GPU", "spec.resources.limits[nvidia.com/gpu]", False, lambda f: f.device is Device.Cuda),
    Feature("speculative decoding", "spec.engine.speculative", False, lambda f: f.speculative),
    Feature("host KV cache", "spec.engine.hostCache", False, lambda f: f.host_cache_bytes),
    Feature("CPU weight offload", "spec.engine.cpuOffload", False, lambda f: f.cpu_offload_bytes),
    Feature("LoRA adapters", "spec.engine.lora", False, lambda f: ", ".join(f.lora)),
    Feature("quantization", "spec.engine.quantization", False, lambda f: f.quantization),
    Feature(
        "KV cache dtype",
        "spec.engine.kvCacheDtype",
        False,
        lambda f: f.kv_cache_dtype is not KvCacheDtype.Auto and f.kv_cache_dtype,
    ),
    Feature("deterministic mode", "spec.engine.deterministic", False, lambda f: f.deterministic and "true"),
    Feature("disaggregated role", "spec.role", False, lambda f: f.role is not Role.Both and f.role.value),
    Feature("tensor parallelism", "spec.parallelism.tensor", False, lambda f: f.tensor > 1 and f.tensor),
    Feature("pipeline parallelism", "spec.parallelism.pipeline", False, lambda f: f.pipeline > 1 and f.pipeline),
    Feature("several nodes", "spec.parallelism.nodes", False, lambda f: f.nodes > 1 and f.nodes),
)
"""Every feature the API can ask for, and whether the engine has it. Nothing is accepted and ignored."""


class NotBuilt(NamedTuple):
    """A feature that was asked for and that this engine does not have yet."""

    field: str
    message: str


def not_built(features: Features, request: GraphRequest) -> tuple[NotBuilt, ...]:
    """Every asked feature the engine does not have; empty when all of them are built."""
    missing = [
        NotBuilt(row.field, f"{row.field}: {_asked(row, asked)} is not built in this version; remove the field")
        for row in FEATURES
        if not row.built and (asked := row.asked(features))
    ]
    for phase, built in BUILT_POLICIES.items():
        asked_policy = request.policy(phase)
        if asked_policy is not Policy.Auto and asked_policy not in built:
            choices = ", ".join([Policy.Auto, *built])
            missing.append(
                NotBuilt(
                    f"spec.graph.{phase}",
                    f"spec.graph.{phase}: {asked_policy} is not built in this version; use one of {choices}",
                )
            )
    return tuple(missing)


def _asked(row: Feature, value: object) -> str:
    """The feature's name, with what was asked of it where there is a choice."""
    return row.name if value is True else f"{row.name} ({value})"
