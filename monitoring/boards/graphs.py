"""The board of graphs: what runs, what it cost to capture, and how often it is replayed."""

from monitoring.boards.row import (
    OF_SERVICES,
    Board,
    Kind,
    Panel,
    Query,
    Section,
    Unit,
    quantiles,
    rate,
    selected,
)

PADDING = 'kind="padding"'
_IDLE = "Empty while no pass runs."
_DECISION = "namespace, inferenceservice, pod, phase, rule, stage, outcome"
_POLICY = "namespace, inferenceservice, pod, phase, requested, planned, effective, backend"

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
            "Warm-up",
            "The state of each pod's start over time: Loading, Capturing, SelfChecking, then Ready. Good: Ready.",
            Kind.Timeline,
            Unit.Count,
            (Query(f"max by (pod, state) ({selected('graphpod_warmup_state')}) > 0", "{{pod}}: {{state}}"),),
            width=6,
        ),
        Panel(
            "Sizes captured",
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
        ),
        Panel(
            "Recaptures",
            "Captures after Ready. Good: 0; any other number is a fault.",
            Kind.Number,
            Unit.Count,
            (Query(f"sum({selected('graphpod_graph_recaptures_total')})", "recaptures"),),
            width=3,
        ),
        Panel(
            "Why these policies",
            "Rules that excluded, adjusted or overrode a policy, in the plan or at the start. To read one: "
            "graphpod rules RULE.",
            Kind.Table,
            Unit.Count,
            (Query(f"max by ({_DECISION}) ({selected('graphpod_graph_decision_info')})", ""),),
            "Empty if no rule changed anything.",
            width=16,
        ),
        Panel(
            "Largest captured size",
            "Rows of the largest graph: tokens of prefill, sequences of decode. Larger passes run eagerly.",
            Kind.Bars,
            Unit.Count,
            (
                Query(
                    f"max by (pod, phase) ({selected('graphpod_graph_max_size_tokens')})",
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
            "Seconds to capture one size: mean, and what 95 % of the captures stay below, of the pods that run.",
            Kind.Bars,
            Unit.Seconds,
            (
                Query(
                    f"sum by (phase, policy) ({selected('graphpod_graph_capture_duration_seconds_sum')})"
                    f" / sum by (phase, policy) ({selected('graphpod_graph_capture_duration_seconds_count')})",
                    "{{phase}} {{policy}} mean",
                ),
                Query(
                    "histogram_quantile(0.95, sum by (le, phase, policy) "
                    f"({selected('graphpod_graph_capture_duration_seconds_bucket')}))",
                    "{{phase}} {{policy}} p95",
                ),
            ),
            "Empty if no phase has graphs.",
        ),
        Panel(
            "Start by stage",
            "Seconds of each stage of a start: the mean over the pods.",
            Kind.Bars,
            Unit.Seconds,
            (Query(f"avg by (stage) ({selected('graphpod_startup_stage_duration_seconds')})", "{{stage}}"),),
            "Empty until the first stage has ended.",
        ),
        Panel(
            "Memory of graphs",
            "Bytes that captured graphs hold: in the allocator's pool, and in the driver (GPU only).",
            Kind.Bars,
            Unit.Bytes,
            (
                Query(
                    f"sum by (pod, phase, policy, kind) ({selected('graphpod_graph_memory_bytes')})",
                    "{{pod}} {{phase}} {{policy}} {{kind}}",
                ),
            ),
        ),
        Panel(
            "Captures",
            "Captures by result. Good: no error.",
            Kind.Bars,
            Unit.Count,
            (
                Query(
                    f"sum by (phase, policy, result) ({selected('graphpod_graph_captures_total')})",
                    "{{phase}} {{policy}} {{result}}",
                ),
            ),
        ),
        Panel(
            "Capture failures by reason",
            "Failed captures and compilations by the rule's id. Good: 0.",
            Kind.Bars,
            Unit.Count,
            (
                Query(
                    f"sum by (phase, reason) ({selected('graphpod_graph_capture_failures_total')})",
                    "{{phase}} {{reason}}",
                ),
            ),
        ),
        Panel(
            "Self-check",
            "Graphs replayed against uncaptured code before Ready. Good: none failed.",
            Kind.Bars,
            Unit.Count,
            (
                Query(
                    f"sum by (phase, policy, result) ({selected('graphpod_graph_selfchecks_total')})",
                    "{{phase}} {{policy}} {{result}}",
                ),
            ),
        ),
    ),
)

REPLAY = Section(
    "Replay",
    (
        Panel(
            "Passes on a graph",
            "Share of forward passes that replay a graph. Good: near 100 % where the policy is not Disabled.",
            Kind.Lines,
            Unit.Share,
            (
                Query(
                    f"sum by (inferenceservice, phase) ({rate('graphpod_graph_replays_total')})"
                    f" / sum by (inferenceservice, phase) ({rate('graphpod_forward_passes_total')})",
                    "{{inferenceservice}} {{phase}}",
                ),
            ),
            _IDLE,
        ),
        Panel(
            "Passes by policy",
            "Forward passes a second by the policy that ran them. Disabled ran eagerly, without a graph.",
            Kind.Stacked,
            Unit.PerSecond,
            (Query(f"sum by (phase, policy) ({rate('graphpod_forward_passes_total')})", "{{phase}} {{policy}}"),),
        ),
        Panel(
            "Fallbacks by reason",
            "Forward passes a second that ran eagerly. Good: 0 for NotCaptured, ForcedEager, Recompiled and "
            "WarmingUp. What to "
            "do for each reason: docs/performance.md, Reading fallbacks.",
            Kind.Stacked,
            Unit.PerSecond,
            (Query(f"sum by (phase, reason) ({rate('graphpod_graph_fallbacks_total')})", "{{phase}} {{reason}}"),),
        ),
        Panel(
            "Padding",
            "Share of the rows of replays that are padding. Above 40 %: add sizes near those of the load.",
            Kind.Lines,
            Unit.Share,
            (
                Query(
                    "sum by (inferenceservice, phase) "
                    f"({rate('graphpod_graph_tokens_total', PADDING)})"
                    f" / sum by (inferenceservice, phase) ({rate('graphpod_graph_tokens_total')})",
                    "{{inferenceservice}} {{phase}}",
                ),
            ),
            _IDLE,
            width=12,
        ),
        Panel(
            "Rows of replays",
            "Rows a second that replays computed: real ones, and padding up to the size of the graph. Good: "
            "little padding.",
            Kind.Stacked,
            Unit.PerSecond,
            (Query(f"sum by (phase, kind) ({rate('graphpod_graph_tokens_total')})", "{{phase}} {{kind}}"),),
            width=12,
        ),
        Panel(
            "Device time of a pass",
            "Median from the first kernel to the last. Disabled is eager: compare it with the graph's.",
            Kind.Lines,
            Unit.Seconds,
            quantiles("graphpod_forward_duration_seconds", "phase, policy", (0.5,)),
            _IDLE,
            width=12,
        ),
        Panel(
            "Host time of a launch",
            "Median time of the host to launch a pass: what graphs save on a GPU. On a CPU the pass has then run.",
            Kind.Lines,
            Unit.Seconds,
            quantiles("graphpod_forward_launch_duration_seconds", "phase, policy", (0.5,)),
            _IDLE,
            width=12,
        ),
    ),
)

BOARD = Board(
    "graphs",
    "graphpod / Graphs",
    "Which graphs run, what they cost to capture, and how often they are replayed.",
    OF_SERVICES,
    (STATE, CAPTURE, REPLAY),
)
