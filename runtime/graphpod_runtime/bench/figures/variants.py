"""What is compared: one engine configuration for each row, all built from the same model and workload."""

from pathlib import Path

import msgspec

from graphpod_policy import (
    RULES,
    CompileMode,
    Device,
    EngineConfig,
    Features,
    GraphRequest,
    ModelConfig,
    Phase,
    Policy,
    PrefixCache,
    not_built,
    resolve,
)
from graphpod_runtime.bench.figures.workload import Workload


class Variant(msgspec.Struct, frozen=True, rename="camel"):
    """One engine: how each phase runs, and how layers are compiled."""

    name: str
    prefill: Policy
    decode: Policy
    compile: CompileMode

    def policy(self, phase: Phase) -> Policy:
        """How `phase` is asked to run."""
        return self.prefill if phase is Phase.Prefill else self.decode

    @property
    def compiled(self) -> str:
        """What a start compiles or traces, as a name; empty: nothing. Variants of one name share a cache."""
        parts = (
            self.compile.value.lower() if self.compile is not CompileMode.Nothing else "",
            "piecewise" if self.prefill is Policy.Piecewise else "",
        )
        return "-".join(part for part in parts if part)

    @property
    def reference(self) -> bool:
        """Whether it is somebody else's engine."""
        return self == REFERENCE

    def asks(self, workload: Workload) -> GraphRequest:
        """What a user would write under spec.graph."""
        return GraphRequest(
            prefill=self.prefill,
            decode=self.decode,
            prefill_sizes=workload.prefill_sizes,
            decode_sizes=workload.decode_sizes,
            compile=self.compile,
        )


NOT, INDUCTOR = CompileMode.Nothing, CompileMode.Inductor
VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        Variant("eager", Policy.Disabled, Policy.Disabled, NOT),
        Variant("breakable", Policy.Breakable, Policy.Full, NOT),
        Variant("piecewise", Policy.Piecewise, Policy.Breakable, NOT),
        Variant("breakable-inductor", Policy.Breakable, Policy.Full, INDUCTOR),
        Variant("piecewise-inductor", Policy.Piecewise, Policy.Breakable, INDUCTOR),
        Variant("eager-inductor", Policy.Disabled, Policy.Disabled, INDUCTOR),
    )
}
"""By name. Three processes for each way of compiling run every policy of both phases once."""


REFERENCE = Variant("transformers", Policy.Disabled, Policy.Disabled, NOT)
"""Hugging Face transformers."""


def features_of(device: Device, workload: Workload) -> Features:
    """The engine's limits under `workload`."""
    return Features(
        device=device,
        gpus=1 if device is Device.Cuda else 0,
        max_model_len=workload.max_model_len,
        max_batch=max(workload.decode_batches),
        prefill_chunk=workload.prefill_chunk,
    )


def obstacles(variant: Variant, device: Device, workload: Workload) -> tuple[str, ...]:
    """Why a service that asks for `variant` would not run it: what this engine lacks, or a rule against compiling."""
    features, request = features_of(device, workload), variant.asks(workload)
    if lacking := not_built(features, request):
        return tuple(entry.message.partition(";")[0] for entry in lacking)
    plan = resolve(features, request)
    against = {rule.id for rule in RULES if rule.compile is not None} if plan.compile is not request.compile else ()
    return tuple(f"{decision.rule}: {decision.because}" for decision in plan.decisions if decision.rule in against)


def engine_config(
    variant: Variant, device: Device, workload: Workload, folder: Path, dtype: str, threads: int | None
) -> EngineConfig:
    """What the engine of `variant` reads. A policy that fails is degraded by the engine, and reported as such."""
    features, request = features_of(device, workload), variant.asks(workload)
    return EngineConfig.of(
        features,
        request,
        resolve(features, request),
        model=ModelConfig(folder.resolve().name, str(folder)),
        dtype=dtype,
        threads=threads,
        # Each round sends the same prompts, and is to compute them.
        prefix_cache=PrefixCache.Off,
    )
