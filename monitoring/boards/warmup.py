"""The board of warm-up's cost: seconds and bytes by stage and size, cold against cached, and restarts."""

from monitoring.boards.row import (
    GOAL,
    LOWEST,
    OF_SERVICES,
    POD_MARKS,
    STAGES,
    Board,
    Kind,
    Level,
    Panel,
    Query,
    Section,
    Tone,
    Unit,
    selected,
)

_STAGES = "graphpod_startup_stage_duration_seconds"
_OF_GRAPHS = 'stage=~"Compile|PrefillCapture|DecodeMeasure|DecodeCapture|SelfCheck"'
_STARTED = "Empty until the first stage of a start has ended."
_GRAPHS = "Empty for pods without graphs."
_SIZES = 8
"""Bars of a phase at most."""

START = Section(
    "Start",
    (
        Panel(
            "Time of the latest start, by stage",
            STAGES,
            Kind.Bars,
            Unit.Seconds,
            (Query(f"max by (namespace, pod, stage) ({selected(_STAGES)})", "{{pod}} {{stage}}"),),
            _STARTED,
        ),
        Panel(
            "Time of the latest start",
            "All stages together, and those that graphs add: Compile, the captures, DecodeMeasure and SelfCheck.",
            Kind.Bars,
            Unit.Seconds,
            (
                Query(f"sum by (namespace, pod) ({selected(_STAGES)})", "{{pod}} in all"),
                Query(f"sum by (namespace, pod) ({selected(_STAGES, _OF_GRAPHS)})", "{{pod}} for graphs"),
            ),
            _STARTED,
        ),
        Panel(
            "Functions compiled, or found in the cache",
            "By torch.compile at the latest start. Good after the first start: all from the cache. Both 0: "
            "spec.graph.compile is None for this service, and nothing is compiled.",
            Kind.Bars,
            Unit.Count,
            (
                Query(
                    f"sum by (namespace, pod, source) ({selected('graphpod_compiled_functions')})",
                    "{{pod}} from the {{source}}",
                ),
            ),
        ),
        Panel(
            "Restarts of the container",
            "Of each pod, within the time shown. Good: 0.",
            Kind.Bars,
            Unit.Count,
            (
                Query(
                    f"max by (namespace, pod) (changes({selected('process_start_time_seconds')}[$__range])"
                    " and on (job, instance) graphpod_build_info)",
                    "{{pod}}",
                ),
            ),
            width=12,
            steps=((LOWEST, Tone.Good), (1, Tone.Bad)),
        ),
        Panel(
            "Share of planned sizes captured",
            "Of each phase, and of both. 100 % when the start ends. It falls only when a policy is given up.",
            Kind.Lines,
            Unit.Share,
            (
                Query(
                    f"sum by (namespace, pod, phase) ({selected('graphpod_graphs')})"
                    f" / (sum by (namespace, pod, phase) ({selected('graphpod_graph_sizes_planned')}) > 0)",
                    "{{pod}} {{phase}}",
                ),
                Query(f"max by (namespace, pod) ({selected('graphpod_warmup_progress_ratio')})", "{{pod}} both"),
            ),
            width=12,
            levels=(Level(1, GOAL),),
            stepped=True,
        ),
    ),
)

GRAPHS = Section(
    "Graphs",
    (
        Panel(
            f"Time to capture a size: the slowest {_SIZES} of each phase",
            "The longest over the pods. The largest size also pays for what all sizes share.",
            Kind.Bars,
            Unit.Seconds,
            (
                Query(
                    f"topk by (phase) ({_SIZES}, "
                    f"max by (phase, size) ({selected('graphpod_graph_size_capture_seconds')}))",
                    "{{phase}} size {{size}}",
                ),
            ),
            _GRAPHS,
            width=12,
        ),
        Panel(
            f"Memory that a size added: the largest {_SIZES} of each phase",
            "By how much its capture raised the memory of pool or driver; sizes that added none are left out. "
            "Sizes share a pool and are captured largest first, so most bytes are those of the largest.",
            Kind.Bars,
            Unit.Bytes,
            (
                Query(
                    f"topk by (phase) ({_SIZES}, "
                    f"max by (phase, size, kind) ({selected('graphpod_graph_size_memory_bytes')}) > 0)",
                    "{{phase}} size {{size}} {{kind}}",
                ),
            ),
            _GRAPHS,
            width=12,
        ),
        Panel(
            "Time of all captures, by phase",
            "Of each pod's start. Decode is captured twice, and captures that failed count, too.",
            Kind.Bars,
            Unit.Seconds,
            (
                Query(
                    "sum by (namespace, pod, phase, policy) "
                    f"({selected('graphpod_graph_capture_duration_seconds_sum')}) > 0",
                    "{{pod}} {{phase}} {{policy}}",
                ),
            ),
            _GRAPHS,
        ),
        Panel(
            "Graphs' share of a start",
            "Share of a start's time that compiling, capturing and checking graphs takes.",
            Kind.Number,
            Unit.Share,
            (
                Query(
                    f"sum by (namespace, pod) ({selected(_STAGES, _OF_GRAPHS)})"
                    f" / sum by (namespace, pod) ({selected(_STAGES)})",
                    "{{pod}}",
                ),
            ),
            _STARTED,
        ),
        Panel(
            "Memory of graphs for each captured size",
            "Memory that the graphs of a phase hold, divided by their number.",
            Kind.Bars,
            Unit.Bytes,
            (
                Query(
                    f"sum by (namespace, pod, phase) ({selected('graphpod_graph_memory_bytes')})"
                    f" / (sum by (namespace, pod, phase) ({selected('graphpod_graphs')}) > 0)",
                    "{{pod}} {{phase}}",
                ),
            ),
            _GRAPHS,
        ),
    ),
)

BOARD = Board(
    "warmup",
    "graphpod / Cost of warm-up",
    "Seconds and bytes of a start by stage and size, cold against cached, and restarts.",
    OF_SERVICES,
    (START, GRAPHS),
    POD_MARKS,
)
