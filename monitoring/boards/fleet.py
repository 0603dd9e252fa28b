"""The board of fleet and GPUs: what each pod holds and does, next to what its GPU reports."""

from monitoring.boards.row import (
    ALERT_BELOW,
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
    rate,
    selected,
)

_IDLE = "Empty while no pass runs."
_GPU = (
    "Empty on a CPU, without dcgm-exporter, or if Prometheus renames its labels namespace and pod: set "
    "honorLabels on its ServiceMonitor."
)
_MIB = 1 << 20
"""DCGM counts memory in MiB."""


def _gpu(metric: str) -> str:
    """A metric of dcgm-exporter, of the GPUs of the pods that the board shows: it knows pods, and no services."""
    here = f'{metric}{{namespace=~"$namespace",pod=~"$pod"}}'
    return f"max by (namespace, pod, gpu) ({here} and on (namespace, pod) {selected('graphpod_build_info')})"


def _replayed(phase: str) -> str:
    """Share of a phase's passes that replay a graph, by pod: both phases together would hide the worse one."""
    only = f'phase="{phase}"'
    return (
        f"sum by (namespace, pod) ({rate('graphpod_graph_replays_total', only)})"
        f" / sum by (namespace, pod) ({rate('graphpod_forward_passes_total', only)})"
    )


FLEET = Section(
    "Fleet",
    (
        Panel(
            "Pods, by state",
            "Pods of each service by the state of their start. Good: all Ready.",
            Kind.Bars,
            Unit.Count,
            (
                Query(
                    f"sum by (namespace, inferenceservice, state) ({selected('graphpod_warmup_state')}) > 0",
                    "{{namespace}}/{{inferenceservice}} {{state}}",
                ),
            ),
            tones=((".* Ready", Tone.Good), (".* Failed", Tone.Bad)),
        ),
        Panel(
            "Memory of each pod",
            "Bytes that weights, KV cache and graphs hold: of the GPU, or of the host on a CPU.",
            Kind.Bars,
            Unit.Bytes,
            (
                Query(f"sum by (namespace, pod, kind) ({selected('graphpod_memory_bytes')})", "{{pod}} {{kind}}"),
                Query(f"sum by (namespace, pod) ({selected('graphpod_graph_memory_bytes')})", "{{pod}} graphs"),
            ),
        ),
        Panel(
            "Backends, kernels and weights",
            "What captures graphs, whose kernels compute attention, how weights are held. Recorder is a CPU.",
            Kind.Table,
            Unit.Count,
            (
                Query(
                    f"max by (namespace, inferenceservice, pod, backend, version) ({selected('graphpod_build_info')})"
                    " * on (namespace, pod) group_left (kernels) "
                    f"max by (namespace, pod, kernels) ({selected('graphpod_attention_info')})"
                    " * on (namespace, pod) group_left (form) "
                    f"max by (namespace, pod, form) ({selected('graphpod_weights_info')})",
                    "",
                ),
            ),
            "Empty until a pod has loaded its model.",
        ),
        Panel(
            "Tokens of each pod",
            "Tokens generated. Pods of one service should be alike.",
            Kind.Lines,
            Unit.TokensPerSecond,
            (Query(f"sum by (namespace, pod) ({rate('graphpod_generation_tokens_total')})", "{{pod}}"),),
            width=6,
        ),
        Panel(
            "Share of decode passes on a graph",
            "Of each pod. A pod below the others runs another policy. Below 90 %: alert GraphpodReplayRatioLow.",
            Kind.Lines,
            Unit.Share,
            (Query(_replayed("decode"), "{{pod}}"),),
            _IDLE,
            levels=(Level(0.9, ALERT_BELOW),),
            width=6,
        ),
        Panel(
            "Share of prefill passes on a graph",
            "Of each pod. Prompts longer than the largest size run without a graph.",
            Kind.Lines,
            Unit.Share,
            (Query(_replayed("prefill"), "{{pod}}"),),
            _IDLE,
            width=6,
        ),
        Panel(
            "Requests of each pod",
            "Requests that run, and those that wait. Far apart among pods: look at how they are routed.",
            Kind.Lines,
            Unit.Count,
            (
                Query(f"sum by (namespace, pod) ({selected('graphpod_requests_running')})", "{{pod}} running"),
                Query(f"sum by (namespace, pod) ({selected('graphpod_requests_waiting')})", "{{pod}} waiting"),
            ),
            width=6,
        ),
    ),
)

GPU = Section(
    "GPU, by dcgm-exporter",
    (
        Panel(
            "GPU memory in use",
            "Of each GPU, whoever uses it.",
            Kind.Lines,
            Unit.Bytes,
            (Query(f"{_gpu('DCGM_FI_DEV_FB_USED')} * {_MIB}", "{{pod}} GPU {{gpu}}"),),
            _GPU,
        ),
        Panel(
            "Graphs' share of GPU memory",
            "What captured graphs hold of the GPU memory in use. Usually a few percent at most.",
            Kind.Lines,
            Unit.Share,
            (
                Query(
                    f"sum by (namespace, pod) ({selected('graphpod_graph_memory_bytes')})"
                    f" / sum by (namespace, pod) ({_gpu('DCGM_FI_DEV_FB_USED')} * {_MIB})",
                    "{{pod}}",
                ),
            ),
            _GPU,
        ),
        Panel(
            "GPU busy",
            "Share of the time in which the GPU computes or copies. Low under load: it waits for the host's launches.",
            Kind.Lines,
            Unit.Share,
            (Query(_gpu("DCGM_FI_PROF_GR_ENGINE_ACTIVE"), "{{pod}} GPU {{gpu}}"),),
            _GPU,
        ),
        Panel(
            "Tensor cores and memory bus busy",
            "Share of the time in which they are active. Decode is bound by the bus, prefill by tensor cores.",
            Kind.Lines,
            Unit.Share,
            (
                Query(_gpu("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"), "{{pod}} GPU {{gpu}} tensor cores"),
                Query(_gpu("DCGM_FI_PROF_DRAM_ACTIVE"), "{{pod}} GPU {{gpu}} memory bus"),
            ),
            _GPU,
        ),
        Panel(
            "Power of each GPU",
            "Watts that it draws.",
            Kind.Lines,
            Unit.Watts,
            (Query(_gpu("DCGM_FI_DEV_POWER_USAGE"), "{{pod}} GPU {{gpu}}"),),
            _GPU,
        ),
        Panel(
            "Latest fault of each GPU",
            "The code (XID) of its latest error; NVIDIA's documentation lists the codes. Good: no fault (XID 0).",
            Kind.Number,
            Unit.Count,
            (Query(_gpu("DCGM_FI_DEV_XID_ERRORS"), "{{pod}} GPU {{gpu}}"),),
            _GPU,
            steps=((LOWEST, Tone.Good), (1, Tone.Bad)),
            words=(Word(0, "no fault", Tone.Good),),
        ),
    ),
)

BOARD = Board(
    "fleet",
    "graphpod / Fleet and GPU",
    "What each pod holds and does, next to what its GPU reports.",
    OF_SERVICES,
    (FLEET, GPU),
    POD_MARKS,
)
