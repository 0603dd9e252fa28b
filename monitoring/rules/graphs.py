"""Alerts about graphs: capture, replay and warm-up."""

from graphpod_policy import FallbackReason, Phase
from monitoring.rules.commands import DECISIONS, DESCRIBE, LOG, service_metrics
from monitoring.rules.ratios import PADDED, REPLAYED
from monitoring.rules.row import PHASE, POD, Alert, Severity, by

UNEXPECTED = (
    FallbackReason.ForcedEager,
    FallbackReason.NotCaptured,
    FallbackReason.Recompiled,
    FallbackReason.WarmingUp,
)
"""Reasons that no batch of a healthy service has; the others follow from what the batch is."""

_FAILURE = (*POD, "phase", "reason")
_POLICY = (*POD, "phase", "planned", "effective")
STARTING = ("Loading", "Capturing", "SelfChecking")
"""States of a start that goes on."""

ALERTS = (
    Alert(
        "GraphpodReplayRatioLow",
        Severity.Warning,
        "10m",
        f'{REPLAYED}{{phase="decode"}} < 0.9\nand on ({", ".join(PHASE)})\n'
        f'{by(PHASE, "max")} (graphpod_graph_policy_info{{effective!="Disabled"}}) == 1',
        PHASE,
        "{{ $value | humanizePercentage }} of the {{ $labels.phase }} passes of "
        "{{ $labels.namespace }}/{{ $labels.inferenceservice }} run on a graph.",
        "Less than 90 % of the decode passes run on a graph, though the service has graphs. Tokens are the same, "
        "but slower.",
        service_metrics(f'^graphpod_graph_fallbacks_total.*phase="{Phase.Decode}".* [1-9]'),
        "Take the reason with the highest count, and do what its row under Reading fallbacks in docs/performance.md "
        "says.",
    ),
    Alert(
        "GraphpodFallbacksUnexpected",
        Severity.Warning,
        "10m",
        f"{by((*PHASE, 'reason'))} (\n"
        f'  rate(graphpod_graph_fallbacks_total{{phase!="draft",reason=~"{"|".join(UNEXPECTED)}"}}[5m])\n) > 0',
        (*PHASE, "reason"),
        "{{ $labels.phase }} passes of {{ $labels.namespace }}/{{ $labels.inferenceservice }} run eagerly: "
        "{{ $labels.reason }}.",
        "Passes run eagerly for a reason that a healthy service does not have. NotCaptured: a planned size has "
        "no graph. "
        "ForcedEager: a debug mode is on. Recompiled and WarmingUp are faults of the engine. Passes of draft models "
        "and heads are left out: some have no graph in a healthy service.",
        (
            DECISIONS,
            'kubectl -n "$NAMESPACE" get deployment "$NAME" -o yaml | grep -A1 GRAPHPOD_DEBUG',
            'kubectl -n "$NAMESPACE" logs "deployment/$NAME" | tail -n 100',
        ),
        "For NotCaptured do what the text after the arrow says. For ForcedEager remove GRAPHPOD_DEBUG from "
        "spec.podTemplate.env. For the other two report the log.",
    ),
    Alert(
        "GraphpodCaptureFailing",
        Severity.Warning,
        "0s",
        f"{by(_FAILURE)} (\n"
        "  increase(graphpod_graph_capture_failures_total[15m]) > 0\n"
        "  or\n"
        "  (graphpod_graph_capture_failures_total > 0\n"
        "   unless graphpod_graph_capture_failures_total offset 15m)\n)",
        _FAILURE,
        "Captures of {{ $labels.phase }} fail in pod {{ $labels.namespace }}/{{ $labels.pod }}: {{ $labels.reason }}.",
        "Captures or compilations failed in the last 15 minutes. The pod serves with a weaker policy, a shorter ladder "
        "or uncompiled layers, or it ended.",
        (DECISIONS, f"{LOG} | grep -i -E 'capture|compile'", f"{LOG} --previous | tail -n 100"),
        "For CaptureOutOfMemory lower spec.engine.maxBatch. For CaptureFailed request the policy that the "
        "decision names. "
        "For CompileFailed set spec.graph.compile: None. The last command fails if the container never restarted.",
    ),
    Alert(
        "GraphpodPolicyDegraded",
        Severity.Warning,
        "30m",
        f"{by(_POLICY, 'max')} (graphpod_graph_policy_info)\n"
        "unless\n"
        f"{by(_POLICY, 'max')} (\n"
        '  label_replace(graphpod_graph_policy_info, "effective", "$1", "planned", "(.*)")\n)',
        _POLICY,
        "Pod {{ $labels.namespace }}/{{ $labels.pod }} runs {{ $labels.phase }} as {{ $labels.effective }}, "
        "planned was {{ $labels.planned }}.",
        "A pod runs a weaker policy than the plan. Answers are right, and slower than planned.",
        (DESCRIBE, DECISIONS),
        "Do what the text after the arrow says. If the weaker policy is fine, request it in spec.graph.",
    ),
    Alert(
        "GraphpodPaddingWasteHigh",
        Severity.Info,
        "1h",
        f"{PADDED} > 0.4",
        PHASE,
        "{{ $value | humanizePercentage }} of the {{ $labels.phase }} rows of "
        "{{ $labels.namespace }}/{{ $labels.inferenceservice }} are padding.",
        "More than 40 % of the rows that graphs compute are padding, for an hour: the sizes of the ladder are far from "
        "those of the load.",
        (
            '.venv/bin/graphpod advise "gisvc/$NAME" -n "$NAMESPACE"',
            *service_metrics("^graphpod_graph_size_padding_tokens_total.* [1-9]"),
        ),
        "Set spec.graph.sizes to the sizes that graphpod advise prints. Without a clone of graphpod, add sizes "
        "below those "
        "with the highest counts: each costs memory and capture time.",
    ),
    Alert(
        "GraphpodRecapture",
        Severity.Warning,
        "0s",
        f"{by((*POD, 'phase'), 'max')} (graphpod_graph_recaptures_total) > 0",
        (*POD, "phase"),
        "Pod {{ $labels.namespace }}/{{ $labels.pod }} captured a {{ $labels.phase }} graph after it was Ready.",
        "A graph was captured after Ready, while requests waited. No load may cause that.",
        (f'{LOG} > "$POD.log"', 'kubectl -n "$NAMESPACE" delete pod "$POD"'),
        "Report the log that the first command wrote. The new pod clears the alert.",
    ),
    Alert(
        "GraphpodSelfCheckFailed",
        Severity.Warning,
        "0s",
        f'{by((*POD, "phase", "policy"))} (graphpod_graph_selfchecks_total{{result="failed"}}) > 0',
        (*POD, "phase", "policy"),
        "{{ $value }} {{ $labels.policy }} graphs of {{ $labels.phase }} in pod "
        "{{ $labels.namespace }}/{{ $labels.pod }} differ from the code they hold.",
        "A captured graph did not give the result of the code it was captured from. The engine does not serve "
        "with that "
        "policy: it took the next weaker one, or the start failed.",
        (DESCRIBE, f"{LOG} | grep -i check", f"{LOG} --previous | grep -i check"),
        "Report the output with the model and the GPU. The service is safe to use as it is. The last command "
        "fails if the "
        "container never restarted.",
    ),
    Alert(
        "GraphpodWarmupStuck",
        Severity.Critical,
        "20m",
        f'{by(POD, "max")} (graphpod_warmup_state{{state=~"{"|".join(STARTING)}"}}) == 1\n'
        f"and on ({', '.join(POD)})\n"
        f"{by(POD)} (changes(graphpod_warmup_state[10m])) == 0\n"
        f"and on ({', '.join(POD)})\n"
        f"{by(POD)} (changes(graphpod_warmup_progress_ratio[10m])) == 0",
        POD,
        "Pod {{ $labels.namespace }}/{{ $labels.pod }} starts without progress for 20 minutes.",
        "A start makes no progress: no new state, no further size. Weights may come from slow storage, or the engine "
        "waits for a device.",
        (DESCRIBE, f"{LOG} | tail -n 50", 'kubectl -n "$NAMESPACE" exec "$POD" -- ls -l /model'),
        "If ls hangs or the log ends at loading, the volume is slow: look at its storage. Otherwise delete the "
        "pod, and "
        "report the log if the next start stops at the same place.",
    ),
)
