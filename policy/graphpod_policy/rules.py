"""The rules: one table of data that decides, for each phase, which graph policy runs.

A rule speaks about some phases and some policies. `Unsupported` and `Unproven` exclude candidates, `Adjust`
changes a ladder, `Gate` sends one batch to the eager path. The reference page is generated from this table.
"""

from collections.abc import Callable
from dataclasses import dataclass

from graphpod_policy.features import BUILT_POLICIES, Features
from graphpod_policy.words import Device, Phase, Policy, Severity

PADDING_RATIO = 2
"""A batch padded to more than this multiple of its rows ..."""
PADDING_ROWS = 64
"""... and by more than this many rows runs eagerly (rule PaddingGate)."""

BOTH = (Phase.Prefill, Phase.Decode)
GRAPHS = (Policy.Piecewise, Policy.Breakable, Policy.Full)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `when` sees the service's features and the candidate (phase, policy); rules with `when=None`
    are applied by name where their fact is known: ladders in `resolve`, failures in the engine, gates for each batch.
    """

    id: str
    phases: tuple[Phase, ...]
    policies: tuple[Policy, ...]
    severity: Severity
    when: Callable[[Features, Phase, Policy], bool] | None
    because: str
    hint: str
    source: str


RULES: tuple[Rule, ...] = (
    Rule(
        "NotBuilt",
        BOTH,
        GRAPHS,
        Severity.Unsupported,
        lambda features, phase, policy: policy not in BUILT_POLICIES[phase],
        "this version's engine does not have the policy for this phase",
        "choose a policy that is built, or Auto",
        "feature table",
    ),
    Rule(
        "PiecewiseDecode",
        (Phase.Decode,),
        (Policy.Piecewise,),
        Severity.Unsupported,
        lambda features, phase, policy: True,
        "a decode step is one small graph: splitting it adds launches and saves nothing",
        "use Full or Breakable for decode",
        "SGLang has no decode path for it and falls back to full",
    ),
    Rule(
        "FullPrefill",
        (Phase.Prefill,),
        (Policy.Full,),
        Severity.Unproven,
        lambda features, phase, policy: True,
        "one graph for a whole prefill needs fixed request slots and bakes attention's shape",
        "use Breakable",
        "SGLang #27988 (experimental)",
    ),
    Rule(
        "NoCuda",
        BOTH,
        GRAPHS,
        Severity.Adjust,
        lambda features, phase, policy: features.device is Device.Cpu,
        "no GPU was asked for: graphs are captured and replayed by the CPU recorder, which brings no speed-up",
        "expected on a CPU; this version does not run on GPUs yet",
        "contract: backend Recorder, short ladders",
    ),
    Rule(
        "LadderClamp",
        BOTH,
        GRAPHS,
        Severity.Adjust,
        None,
        "sizes above what one pass can hold would never be replayed",
        "raise maxModelLen or maxBatch, or drop these sizes",
        "SGLang #22516: capture above context x slots crashed",
    ),
    Rule(
        "LadderEmpty",
        BOTH,
        GRAPHS,
        Severity.Unsupported,
        None,
        "no size is left to capture",
        "give at least one size that one pass can hold",
        "sglang-omni #1802: a backend without sizes only warned",
    ),
    Rule(
        "LadderMemory",
        BOTH,
        GRAPHS,
        Severity.Adjust,
        None,
        "memory ran out while capturing: the largest sizes were dropped",
        "raise the memory limit or give a shorter size list",
        "contract: out of memory shortens the ladder and retries once",
    ),
    Rule(
        "UnknownLayers",
        BOTH,
        GRAPHS,
        Severity.Unsupported,
        None,
        "the attention layers found differ from the model's configuration",
        "check config.json against the weights",
        "SGLang blames GQA when a pipeline rank sees fewer layers",
    ),
    Rule(
        "CaptureFailed",
        BOTH,
        GRAPHS,
        Severity.Unsupported,
        None,
        "a capture failed",
        "read the engine's log for model, layer, segment and size; set graph.onCaptureFailure to Fail to stop here",
        "engine",
    ),
    Rule(
        "CaptureOutOfMemory",
        BOTH,
        GRAPHS,
        Severity.Unsupported,
        None,
        "memory ran out while capturing and a shorter ladder did not help",
        "raise the memory limit or give a shorter size list",
        "engine",
    ),
    Rule(
        "SelfCheckFailed",
        BOTH,
        GRAPHS,
        Severity.Unsupported,
        None,
        "a replay differed from the same code run without a graph",
        "report the model, size and engine version; the service runs a weaker policy meanwhile",
        "engine",
    ),
    Rule(
        "PaddingGate",
        (Phase.Prefill,),
        GRAPHS,
        Severity.Gate,
        None,
        f"padding to the next size would compute over {PADDING_RATIO} times the rows, and {PADDING_ROWS} rows more",
        "add a size near the batch's token count",
        "SGLang #31487; the absolute term keeps small batches on graphs (#40253)",
    ),
)

BY_ID: dict[str, Rule] = {rule.id: rule for rule in RULES}


def padding_refused(real: int, padded: int) -> bool:
    """Rule PaddingGate for a batch of `real` rows on a graph of `padded` rows."""
    return padded > PADDING_RATIO * real and padded - real > PADDING_ROWS
