"""The board of graphs: what runs, what it cost to capture, and how often it is replayed."""

from monitoring.boards.ranks import RANKS
from monitoring.boards.row import (
    ALERT_BELOW,
    LOOK_ABOVE,
    LOWEST,
    OF_SERVICES,
    POD_MARKS,
    Board,
    Kind,
    Level,
    Panel,
    Query,
    Section,
    Tone,
    Unit,
    Word,
    counted,
    quantiles,
    rate,
    selected,
)

PADDING = 'kind="padding"'
_IDLE = "Empty while no pass runs."
_DECISION = "namespace, inferenceservice, pod, phase, rule, stage, outcome"
_POLICY = "namespace, inferenceservice, pod, phase, requested, planned, effective, backend"
_SIZES = 8
"""Bars of a phase at most."""


def _most(counter: str) -> Query:
    """A counter of sizes, within the time shown: the largest of each phase."""
    added = f"round(sum by (phase, size) (increase({selected(counter)}[$__range])))"  # increase() extrapolates
    return Query(f"topk by (phase) ({_SIZES}, {added} > 0)", "{{phase}}, size {{size}}")


_STATES = (
    Word(1, "Loading", Tone.Pale),
    Word(2, "Capturing", Tone.Plain),
    Word(3, "SelfChecking", Tone.Deep),
    Word(4, "Ready", Tone.Good),
    Word(5, "Failed", Tone.Bad),
)
_EACH = (f"{word.value:g} * " + selected("graphpod_warmup_state", f'state="{word.text}"') for word in _STATES)
_STATE = f"sum by (namespace, pod) ({' or '.join(_EACH)})"
"""Each pod's state as a number: of a state that it is not in, 0 is added."""

STATE = Section(
    "State",
    (
        Panel(
            "Policies by pod",
            "The policy requested, the one planned, and the one that runs (effective). Effective weaker than "
            "planned: see the alert "
            "GraphpodPolicyDegraded. Backend Recorder is a CPU and brings no speed-up.",
            Kind.Table,
            Unit.Count,
            (Query(f"max by ({_POLICY}) ({selected('graphpod_graph_policy_info')})", ""),),
            width=12,
        ),
        Panel(
            "State of each pod",
            "The state of each pod's start over time: Loading, Capturing, SelfChecking, then Ready. Good: Ready.",
            Kind.Timeline,
            Unit.Count,
            (Query(_STATE, "{{pod}}"),),
            width=6,
            words=_STATES,
        ),
        Panel(
            "Planned sizes captured",
            "Share of the planned sizes that are captured. Good: 100 %.",
            Kind.Number,
            Unit.Share,
            (
                Query(
                    f"sum by (phase) ({selected('graphpod_graphs')})"
                    f" / sum by (phase) ({selected('graphpod_graph_sizes_planned')})",
                    "{{phase}}",
                ),
            ),
            "Empty for a phase without graphs.",
            width=3,
            steps=((LOWEST, Tone.Bad), (1, Tone.Good)),
        ),
        Panel(
            "Captures after Ready",
            "Good: 0. Any other number is a fault.",
            Kind.Number,
            Unit.Count,
            (Query(f"sum({selected('graphpod_graph_recaptures_total')})", "captures"),),
            width=3,
            steps=((LOWEST, Tone.Good), (1, Tone.Bad)),
        ),
        Panel(
            "Why these policies",
            "Rules that changed a policy or its sizes. Stage: the rule applied to the Spec, before the pod; to the "
            "Engine at its start; or at Runtime. Outcome: policy Excluded, or only its sizes or compiling Adjusted, "
            "and so on. NoCuda: no GPU is requested, as expected on a CPU. To read any rule: graphpod rules RULE.",
            Kind.Table,
            Unit.Count,
            (Query(f"max by ({_DECISION}) ({selected('graphpod_graph_decision_info')})", ""),),
            "Empty if no rule changed anything.",
            width=16,
        ),
        Panel(
            "Largest captured size, in rows",
            "A row is a token of prefill, or a sequence of decode. Passes with more rows run eagerly.",
            Kind.Bars,
            Unit.Count,
            (
                Query(
                    f"max by (namespace, pod, phase) ({selected('graphpod_graph_max_size_tokens')})",
                    "{{pod}} {{phase}}",
                ),
            ),
        ),
    ),
)

CAPTURE = Section(
    "Capture",
    (
        Panel(
            "Time to capture a size",
            "Seconds to capture one size: the mean of all captures, of those that failed, too, and the slowest size "
            "that is captured. Of the pods that run.",
            Kind.Bars,
            Unit.Seconds,
            (
                Query(
                    f"sum by (phase, policy) ({selected('graphpod_graph_capture_duration_seconds_sum')})"
                    f" / (sum by (phase, policy) ({selected('graphpod_graph_capture_duration_seconds_count')}) > 0)",
                    "{{phase}} {{policy}} mean",
                ),
                Query(
                    f"max by (phase, policy) ({selected('graphpod_graph_size_capture_seconds')})",
                    "{{phase}} {{policy}} slowest",
                ),
            ),
            "Empty if no phase has graphs.",
            width=12,
        ),
        Panel(
            "Memory of graphs",
            "Bytes that captured graphs hold: in the allocator's pool, and in the driver (GPU only).",
            Kind.Bars,
            Unit.Bytes,
            (
                Query(
                    f"sum by (namespace, pod, phase, policy, kind) ({selected('graphpod_graph_memory_bytes')}) > 0",
                    "{{pod}} {{phase}} {{policy}} {{kind}}",
                ),
            ),
            "Empty if no phase has graphs.",
            width=12,
        ),
        Panel(
            "Captures, by result",
            "One for each size, and decode twice: a first round measures memory and is dropped before the KV cache "
            "is allocated. Good: no error.",
            Kind.Bars,
            Unit.Count,
            (
                Query(
                    f"sum by (phase, policy, result) ({selected('graphpod_graph_captures_total')}) > 0",
                    "{{phase}} {{policy}} {{result}}",
                ),
            ),
            "Empty until the first capture.",
            tones=((".* error", Tone.Bad), (".* ok", Tone.Good)),
        ),
        Panel(
            "Capture failures, by reason",
            "Failed captures and compilations by the rule's id. Good: 0.",
            Kind.Bars,
            Unit.Count,
            (
                Query(
                    counted(f"sum by (phase, reason) ({selected('graphpod_graph_capture_failures_total')})", "reason"),
                    "{{phase}} {{reason}}",
                ),
            ),
            steps=((LOWEST, Tone.Good), (1, Tone.Bad)),
        ),
        Panel(
            "Self-check, by result",
            "Graphs that serve, each replayed once before Ready and compared with uncaptured code. Good: none failed.",
            Kind.Bars,
            Unit.Count,
            (
                Query(
                    f"sum by (phase, policy, result) ({selected('graphpod_graph_selfchecks_total')}) > 0",
                    "{{phase}} {{policy}} {{result}}",
                ),
            ),
            "Empty until the self-check.",
            tones=((".* failed", Tone.Bad), (".* passed", Tone.Good)),
        ),
    ),
)

REPLAY = Section(
    "Replay",
    (
        Panel(
            "Share of passes on a graph",
            "Share of forward passes that replay a graph. Good: near 100 % where the policy is not Disabled. Below "
            "90 % in decode: alert GraphpodReplayRatioLow.",
            Kind.Lines,
            Unit.Share,
            (
                Query(
                    f"sum by (namespace, inferenceservice, phase) ({rate('graphpod_graph_replays_total')})"
                    f" / sum by (namespace, inferenceservice, phase) ({rate('graphpod_forward_passes_total')})",
                    "{{namespace}}/{{inferenceservice}} {{phase}}",
                ),
            ),
            _IDLE,
            levels=(Level(0.9, ALERT_BELOW),),
        ),
        Panel(
            "Passes, by policy",
            "Forward passes a second by the policy that ran them. Disabled: eagerly, without a graph.",
            Kind.Stacked,
            Unit.PerSecond,
            (Query(f"sum by (phase, policy) ({rate('graphpod_forward_passes_total')})", "{{phase}} {{policy}}"),),
        ),
        Panel(
            "Eager passes, by reason",
            "Forward passes a second without a graph (fallbacks). Good: 0 for NotCaptured, ForcedEager, Recompiled and "
            "WarmingUp. For each reason: docs/performance.md, Reading fallbacks.",
            Kind.Stacked,
            Unit.PerSecond,
            (Query(f"sum by (phase, reason) ({rate('graphpod_graph_fallbacks_total')})", "{{phase}} {{reason}}"),),
        ),
        Panel(
            "Share of padding",
            "Share of the rows of replays that are padding. Above 40 %: add sizes near those of the load.",
            Kind.Lines,
            Unit.Share,
            (
                Query(
                    "sum by (namespace, inferenceservice, phase) "
                    f"({rate('graphpod_graph_tokens_total', PADDING)})"
                    f" / sum by (namespace, inferenceservice, phase) ({rate('graphpod_graph_tokens_total')})",
                    "{{namespace}}/{{inferenceservice}} {{phase}}",
                ),
            ),
            _IDLE,
            width=12,
            levels=(Level(0.4, LOOK_ABOVE),),
        ),
        Panel(
            "Rows of replays",
            "Rows a second that replays computed: real ones, and padding up to the size of the graph. Good: "
            "little padding.",
            Kind.Stacked,
            Unit.PerSecond,
            (Query(f"sum by (phase, kind) ({rate('graphpod_graph_tokens_total')})", "{{phase}} {{kind}}"),),
            width=12,
            tones=((".* real", Tone.Plain), (".* padding", Tone.Warn)),
        ),
        Panel(
            "Time of a pass on the device",
            "From the first kernel to the last. Disabled is eager: compare it with the graph's.",
            Kind.Lines,
            Unit.Seconds,
            quantiles("graphpod_forward_duration_seconds", "phase, policy", (0.5,)),
            _IDLE,
            width=12,
        ),
        Panel(
            "Time of the host to launch a pass",
            "What graphs shorten on a GPU. On a CPU (backend Recorder) host and device are one: the launch includes "
            "the whole pass, and both times are about the same.",
            Kind.Lines,
            Unit.Seconds,
            quantiles("graphpod_forward_launch_duration_seconds", "phase, policy", (0.5,)),
            _IDLE,
            width=12,
        ),
    ),
)


LADDER = Section(
    "Sizes",
    (
        Panel(
            "Rows of a pass before padding",
            "What requests need: a good ladder has sizes just above it. graphpod advise computes one.",
            Kind.Lines,
            Unit.Number,
            quantiles("graphpod_graph_requested_rows", "phase", (0.5, 0.95), whole=True),
            _IDLE,
        ),
        Panel(
            "Passes, by size: the largest 8 of each phase",
            "Passes that ran on the graph of each size, within the time shown.",
            Kind.Bars,
            Unit.Count,
            (_most("graphpod_graph_size_replays_total"),),
            _IDLE,
        ),
        Panel(
            "Rows of padding, by size: the largest 8 of each phase",
            "Padding that the graph of each size computed, within the time shown. Much at one size: add a size "
            "below it.",
            Kind.Bars,
            Unit.Count,
            (_most("graphpod_graph_size_padding_tokens_total"),),
            _IDLE,
        ),
        Panel(
            "Sizes that no pass used",
            "Captured sizes without a replay within the time shown. They cost warm-up and memory. Good: 0.",
            Kind.Bars,
            Unit.Count,
            (
                Query(
                    "sum by (phase) (sum by (phase, size) "
                    f"(increase({selected('graphpod_graph_size_replays_total')}[$__range])) == bool 0)",
                    "{{phase}}",
                ),
            ),
            "Empty if no phase has graphs.",
        ),
        Panel(
            "Segments of a pass",
            "Graphs that one pass replays: 1 for Full, the breaks and one more for Breakable.",
            Kind.Bars,
            Unit.Count,
            (
                Query(
                    f"max by (namespace, pod, phase, policy) ({selected('graphpod_graph_segments')})",
                    "{{pod}} {{phase}} {{policy}}",
                ),
            ),
            "Empty for a phase without graphs.",
        ),
        Panel(
            "Eager passes that no reason explains",
            "Passes that a hook on the model's body counted, without those that have a reason. Good: 0. Any other "
            "number is a fault, except in a debug mode.",
            Kind.Number,
            Unit.Count,
            (
                Query(
                    f"sum by (phase) ({selected('graphpod_eager_passes_total')})"
                    f" - sum by (phase) ({selected('graphpod_graph_fallbacks_total')})",
                    "{{phase}}",
                ),
            ),
            steps=((LOWEST, Tone.Bad), (0, Tone.Good), (1, Tone.Bad)),
        ),
    ),
)

BOARD = Board(
    "graphs",
    "graphpod / Graphs",
    "Which graphs run, what they cost to capture, and how often they are replayed.",
    OF_SERVICES,
    (STATE, CAPTURE, RANKS, REPLAY, LADDER),
    POD_MARKS,
)
