"""The board of warm-up's cost: seconds and bytes by stage and size, cold against cached, and restarts."""

from monitoring.boards.row import OF_SERVICES, Board, Kind, Panel, Query, Section, Unit, selected

_STAGES = "graphpod_startup_stage_duration_seconds"
_OF_GRAPHS = 'stage=~"Compile|PrefillCapture|DecodeMeasure|DecodeCapture|SelfCheck"'
_STARTED = "Empty until the first stage of a start has ended."
_GRAPHS = "Empty for pods without graphs."
_SIZES = 16
"""Bars of a panel at most."""

START = Section(
    "Start",
    (
        Panel(
            "Seconds by stage",
            "Seconds of each stage of each pod's latest start.",
            Kind.Bars,
            Unit.Seconds,
            (Query(f"max by (pod, stage) ({selected(_STAGES)})", "{{pod}} {{stage}}"),),
            _STARTED,
        ),
        Panel(
            "Seconds of a start",
            "All stages of each pod's latest start together, and those that graphs add.",
            Kind.Bars,
            Unit.Seconds,
            (
                Query(f"sum by (pod) ({selected(_STAGES)})", "{{pod}}"),
                Query(f"sum by (pod) ({selected(_STAGES, _OF_GRAPHS)})", "{{pod}} for graphs"),
            ),
            _STARTED,
        ),
        Panel(
            "Compiled or cached",
            "Functions that the start compiled, and those it found in its cache on disk. Good: none compiled after the "
            "first start. Both 0: nothing is compiled.",
            Kind.Bars,
            Unit.Count,
            (Query(f"sum by (pod, source) ({selected('graphpod_compiled_functions')})", "{{pod}} {{source}}"),),
        ),
        Panel(
            "Restarts",
            "Restarts of each pod's container within the time of the board. Good: 0.",
            Kind.Bars,
            Unit.Count,
            (
                Query(
                    f"max by (pod) (changes({selected('process_start_time_seconds')}[$__range])"
                    " and on (job, instance) graphpod_build_info)",
                    "{{pod}}",
                ),
            ),
        ),
        Panel(
            "Progress",
            "Share of the planned sizes that are captured. It falls only when a policy is given up.",
            Kind.Lines,
            Unit.Share,
            (Query(f"max by (pod) ({selected('graphpod_warmup_progress_ratio')})", "{{pod}}"),),
        ),
        Panel(
            "From a change to Ready",
            "Seconds until a new or changed service is Ready: what 50 % and 95 % of them stay below, since the "
            "operator started.",
            Kind.Bars,
            Unit.Seconds,
            tuple(
                Query(
                    f"histogram_quantile({share:g}, sum by (le) (graphpod_operator_time_to_ready_seconds_bucket))",
                    f"p{share * 100:g}",
                )
                for share in (0.5, 0.95)
            ),
            "Empty until a service got Ready that this operator saw from its beginning.",
        ),
    ),
)

GRAPHS = Section(
    "Graphs",
    (
        Panel(
            "Seconds by size",
            f"Seconds that the capture of a size took, the slowest {_SIZES}. The largest also pays for what all share.",
            Kind.Bars,
            Unit.Seconds,
            (
                Query(
                    f"topk({_SIZES}, max by (phase, size) ({selected('graphpod_graph_size_capture_seconds')}))",
                    "{{phase}} {{size}}",
                ),
            ),
            _GRAPHS,
            width=12,
        ),
        Panel(
            "Bytes by size",
            f"Bytes by which the capture of a size raised pool or driver memory, the largest {_SIZES}. Sizes share a "
            "pool and are captured largest first, so most bytes are those of the largest.",
            Kind.Bars,
            Unit.Bytes,
            (
                Query(
                    f"topk({_SIZES}, max by (phase, size, kind) ({selected('graphpod_graph_size_memory_bytes')}) > 0)",
                    "{{phase}} {{size}} {{kind}}",
                ),
            ),
            _GRAPHS,
            width=12,
        ),
        Panel(
            "Seconds by phase",
            "Seconds of all captures of each pod's start, those of attempts that failed included.",
            Kind.Bars,
            Unit.Seconds,
            (
                Query(
                    f"sum by (pod, phase, policy) ({selected('graphpod_graph_capture_duration_seconds_sum')}) > 0",
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
                    f"sum by (pod) ({selected(_STAGES, _OF_GRAPHS)}) / sum by (pod) ({selected(_STAGES)})",
                    "{{pod}}",
                ),
            ),
            _STARTED,
        ),
        Panel(
            "Bytes for a captured size",
            "Memory that the graphs of a phase hold, divided by their number.",
            Kind.Bars,
            Unit.Bytes,
            (
                Query(
                    f"sum by (pod, phase) ({selected('graphpod_graph_memory_bytes')})"
                    f" / (sum by (pod, phase) ({selected('graphpod_graphs')}) > 0)",
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
)
