"""Rules about the policies themselves, whatever the service uses."""

from graphpod_policy.engine_features import BUILT_POLICIES
from graphpod_policy.enums import Backend, Device, Policy, Role, Severity
from graphpod_policy.rules.rule import BOTH, DECODE, GRAPHS, PREFILL, Rule, always

TITLE = "Policies, devices and roles"
NOT_BUILT = "NotBuilt"
"""The rule of a policy that the engine lacks: a request for it is refused, whatever the resolver makes of it."""

ROWS: tuple[Rule, ...] = (
    Rule(
        id=NOT_BUILT,
        phases=BOTH,
        policies=GRAPHS,
        severity=Severity.Unproven,
        when=lambda case: case.policy not in BUILT_POLICIES[case.phase],
        because="this version's engine does not have the policy for this phase",
        hint="set the phase to Auto or to a built policy: an explicit request gives FeatureNotBuilt",
        source="feature table",
    ),
    Rule(
        id="PiecewiseDecode",
        phases=DECODE,
        policies=(Policy.Piecewise,),
        severity=Severity.Unsupported,
        when=always,
        because="a decode step is one small graph: splitting it adds launches and saves nothing",
        hint="set spec.graph.decode: Full, or Breakable",
        source="SGLang runner_backend/utils.py: no decode path, falls back to full with a warning",
    ),
    Rule(
        id="FullPrefill",
        phases=PREFILL,
        policies=(Policy.Full,),
        severity=Severity.Unproven,
        when=always,
        because="one graph for a whole prefill needs fixed request slots and bakes the shape of attention",
        hint="set spec.graph.prefill: Breakable, which costs only 0.15 to 0.2 ms a pass",
        source="SGLang #27988 (experimental); cost measured on one H200",
    ),
    Rule(
        id="NoCuda",
        phases=BOTH,
        policies=GRAPHS,
        severity=Severity.Adjust,
        when=lambda case: case.features.device is Device.Cpu,
        because="the spec requests no GPU: the CPU recorder captures and replays graphs, which brings no speed-up",
        hint="nothing to do: this is expected on a CPU, and everything else is as on a GPU",
        source="SGLang PCG rule 5 disables every device but CUDA; here the recorder runs the same code, short ladders",
        feature="CPU",
        backend=Backend.Recorder,
    ),
    Rule(
        id="DisaggregatedPrefill",
        phases=DECODE,
        policies=GRAPHS,
        severity=Severity.Unsupported,
        when=lambda case: case.features.role is Role.Prefill,
        because="a pod of role Prefill never decodes",
        hint="nothing to do: this is expected (spec.graph.decode: Disabled says the same)",
        source="SGLang _apply_cuda_graph_disaggregation_roles",
        feature="disaggregated role",
    ),
    Rule(
        id="DisaggregatedPrefill",
        phases=PREFILL,
        policies=(Policy.Piecewise,),
        severity=Severity.Unproven,
        when=lambda case: case.features.role is Role.Prefill,
        because="traced pieces are not proved yet while KV pages leave for another pod",
        hint="set spec.graph.prefill: Breakable",
        source="SGLang PCG rule 14 (off, no reason recorded); its breakable graphs run in this role",
        feature="disaggregated role",
    ),
    Rule(
        id="DisaggregatedDecode",
        phases=PREFILL,
        policies=GRAPHS,
        severity=Severity.Unsupported,
        when=lambda case: case.features.role is Role.Decode,
        because="a pod of role Decode never prefills",
        hint="nothing to do: this is expected (spec.graph.prefill: Disabled says the same)",
        source="SGLang _apply_cuda_graph_disaggregation_roles",
        feature="disaggregated role",
    ),
)
