"""Rules about weights and KV cache that do not stay where they are."""

from graphpod_policy.enums import Duty, Policy, Severity
from graphpod_policy.rules.rule import BOTH, DECODE, GRAPHS, PREFILL, Rule

TITLE = "Offload, host cache"

ROWS: tuple[Rule, ...] = (
    Rule(
        id="CpuOffload",
        phases=BOTH,
        policies=GRAPHS,
        severity=Severity.Unsupported,
        when=lambda case: case.features.cpu_offload_bytes is not None and not case.features.cpu_offload_staging,
        because="weights that move during the forward pass are not where a graph expects them",
        hint="set spec.engine.cpuOffload.staging: true, or make weights smaller by spec.engine.quantization",
        source="SGLang PCG rule 12, its half about offload; seed #16331",
        feature="CPU weight offload",
    ),
    Rule(
        id="CpuOffload",
        phases=BOTH,
        policies=GRAPHS,
        severity=Severity.Unproven,
        when=lambda case: case.features.cpu_offload_bytes is not None and case.features.cpu_offload_staging,
        because="pinned weights copied to fixed staging addresses can be captured, but this is not proved yet",
        hint="set the phase to Breakable or Full to try it: the self-check runs before Ready",
        source="contract: any graph Unsupported unless weights are staged, then Unproven",
        feature="CPU weight offload",
    ),
    Rule(
        id="HostKvCache",
        phases=PREFILL,
        policies=(Policy.Piecewise, Policy.Full),
        severity=Severity.Adjust,
        when=lambda case: case.features.host_cache_bytes is not None,
        because="a traced or captured pass cannot hold the wait for a layer's load from the host",
        hint="nothing to do: a pass is launched behind all loads that it may read",
        source="SGLang memory_pool.py get_key_buffer waits for each layer; #38354: the load counter in the trace "
        "recompiled in serving; contract: under Piecewise and Full the wait is before the replay",
        feature="host KV cache",
        duty=Duty.LoadsBeforeReplay,
    ),
    Rule(
        id="HostKvCache",
        phases=PREFILL,
        policies=(Policy.Breakable,),
        severity=Severity.Adjust,
        when=lambda case: case.features.host_cache_bytes is not None,
        because="KV pages come back from the host while a prefill runs; unlike offloaded weights they are read in "
        "breaks only",
        hint="nothing to do: no break reads a page before its load has come",
        source="SGLang memory_pool.py get_key_buffer waits for each layer; no rule for breakable graphs",
        feature="host KV cache",
        duty=Duty.LoadsInBreaks,
    ),
    Rule(
        id="HostKvCache",
        phases=DECODE,
        policies=GRAPHS,
        severity=Severity.Adjust,
        when=lambda case: case.features.host_cache_bytes is not None,
        because="a decode graph reads pages without asking whether they have arrived",
        hint="nothing to do: a request joins decode after its load event",
        source="SGLang #19177, #38300, #38448: graphs that overlapped host transfers",
        feature="host KV cache",
        duty=Duty.JoinAfterLoad,
    ),
)
