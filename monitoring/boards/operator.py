"""The board of the operator: the services it manages, its queue, and its talk with the API server."""

from monitoring.boards.row import (
    ALERT_ABOVE,
    LOWEST,
    Board,
    Kind,
    Level,
    Mark,
    Panel,
    Query,
    Section,
    Tone,
    Unit,
    Variable,
    counted,
)
from monitoring.rules.operator import CONTROLLER, LEASE

_HERE = 'namespace=~"$namespace"'
_NAMED = f'{_HERE},name="{CONTROLLER}"'
_OURS = f'{_HERE},controller="{CONTROLLER}"'
_LEADS = f'and on (job, instance) leader_election_master_status{{name="{LEASE}"}} == 1'
_MINE = "and on (job, instance) graphpod_operator_build_info"
_IDLE = "Empty while nothing is reconciled."


def _rate(series: str) -> str:
    return f"rate({series}[$__rate_interval])"


def _quantiles(histogram: str, selector: str) -> tuple[Query, ...]:
    """Quantiles, and the mean."""

    def rate(part: str) -> str:
        return f"{_rate(f'{histogram}_{part}{{{selector}}}')} {_MINE}"

    return (
        *(
            Query(f"histogram_quantile({share:g}, sum by (le) ({rate('bucket')}))", f"p{share * 100:g}")
            for share in (0.5, 0.99)
        ),
        Query(f"sum({rate('sum')}) / sum({rate('count')})", "mean"),
    )


def _named(expr: str, *labels: str) -> str:
    """With `none yet` for each of the labels that is empty."""
    for label in labels:
        expr = f'label_replace({expr}, "{label}", "none yet", "{label}", "")'
    return expr


SERVICES = Section(
    "Services",
    (
        Panel(
            "Services, by phase",
            "Phase as in the status, and whether a pod serves (available). Starting and available: a rollout, in which "
            "earlier pods serve. Degraded: Ready with a policy weaker than planned. Good: all Ready.",
            Kind.Stacked,
            Unit.Count,
            (
                Query(
                    _named(
                        f"sum by (phase, available) (graphpod_operator_service_phases{{{_HERE}}} {_LEADS})", "phase"
                    ),
                    "{{phase}}, available={{available}}",
                ),
            ),
            "Empty while there are no services.",
            tones=(
                ("Ready, .*", Tone.Good),
                ("Degraded, .*", Tone.Warn),
                ("Starting, available=True", Tone.Plain),
                ("(Downloading|Starting|Suspended|Sleeping|none yet), .*", Tone.Pale),
                (".*", Tone.Bad),
            ),
        ),
        Panel(
            "Services, by effective policy",
            "InferenceServices by what runs for prefill and decode. none yet: no pod has reported.",
            Kind.Bars,
            Unit.Count,
            (
                Query(
                    _named(
                        f"sum by (prefill, decode) (graphpod_operator_inferenceservices{{{_HERE}}} {_LEADS})",
                        "prefill",
                        "decode",
                    ),
                    "prefill {{prefill}}, decode {{decode}}",
                ),
            ),
            "Empty while there are no services.",
        ),
        Panel(
            "Replica that leads",
            "1 for the replica that holds the Lease and writes, 0 for those that wait. Good: exactly one 1.",
            Kind.Bars,
            Unit.Count,
            (
                Query(
                    f'max by (namespace, pod, instance) (leader_election_master_status{{{_HERE},name="{LEASE}"}})',
                    "{{pod}} {{instance}}",
                ),
            ),
            steps=((1, Tone.Good),),
        ),
        Panel(
            "Age of the last success",
            "Since the last reconcile that succeeded. It rises while nothing changes: a resync resets it. Above 900 s "
            "with services: alert GraphpodOperatorStalled.",
            Kind.Lines,
            Unit.Seconds,
            (
                Query(
                    "max by (namespace, pod) "
                    f"(time() - graphpod_operator_last_success_timestamp_seconds{{{_HERE}}} {_LEADS})",
                    "{{pod}}",
                ),
            ),
            levels=(Level(900, ALERT_ABOVE),),
        ),
        Panel(
            "Drift and conflicts, by kind",
            "Objects a second that were put back, and applies refused because another writer owns a field. Good: 0.",
            Kind.Lines,
            Unit.PerSecond,
            (
                Query(
                    f"sum by (kind) ({_rate(f'graphpod_operator_drift_corrections_total{{{_HERE}}}')})",
                    "{{kind}} put back",
                ),
                Query(
                    f"sum by (kind) ({_rate(f'graphpod_operator_apply_conflicts_total{{{_HERE}}}')})",
                    "{{kind}} refused",
                ),
            ),
        ),
        Panel(
            "Readings of pods' warm-up, by result",
            "The operator reads a pod while it starts, and a Ready pod every few minutes or not at all. unreachable "
            "for long: a NetworkPolicy keeps the operator out. sleep, wake, reload: orders about weights, one for each "
            "change of graphpod.dev/sleep or graphpod.dev/reload, and again where a pod could not obey.",
            Kind.Lines,
            Unit.PerSecond,
            (
                Query(f"sum by (result) ({_rate(f'graphpod_operator_warmup_reads_total{{{_HERE}}}')})", "{{result}}"),
                Query(
                    f"sum by (order, result) ({_rate(f'graphpod_operator_weights_orders_total{{{_HERE}}}')})",
                    "{{order}}: {{result}}",
                ),
            ),
        ),
        Panel(
            "Policies that became weaker than planned",
            "Times since the operator started: the phase, its planned policy, and the effective one. Good: none.",
            Kind.Bars,
            Unit.Count,
            (
                Query(
                    counted(
                        "label_join(sum by (phase, planned, effective) "
                        f"(graphpod_operator_policy_degradations_total{{{_HERE}}} {_MINE}), "
                        '"change", " → ", "planned", "effective")',
                        "change",
                    ),
                    "{{phase}} {{change}}",
                ),
            ),
            width=12,
            steps=((LOWEST, Tone.Good), (1, Tone.Bad)),
        ),
        Panel(
            "Time from a change to Ready",
            "Until a new or changed service is Ready, of all services since the operator started: the mean, and 95 % "
            "(p95) took less.",
            Kind.Bars,
            Unit.Seconds,
            (
                Query(
                    f"sum(graphpod_operator_time_to_ready_seconds_sum{{{_HERE}}})"
                    f" / sum(graphpod_operator_time_to_ready_seconds_count{{{_HERE}}})",
                    "mean",
                ),
                Query(
                    "histogram_quantile(0.95, sum by (le) "
                    f"(graphpod_operator_time_to_ready_seconds_bucket{{{_HERE}}}))",
                    "p95",
                ),
            ),
            "Empty until a service got Ready that this operator saw from its beginning.",
            width=12,
        ),
    ),
)

QUEUE = Section(
    "Queue",
    (
        Panel(
            "Reconciles, by result",
            "0 while nothing changes. requeue_after: success, with a time to look again. Good: no error.",
            Kind.Stacked,
            Unit.PerSecond,
            (
                Query(
                    f"sum by (result) ({_rate(f'controller_runtime_reconcile_total{{{_OURS}}}')} {_MINE})", "{{result}}"
                ),
            ),
            tones=(("success", Tone.Good), ("error", Tone.Bad), ("requeue_after", Tone.Plain), (".*", Tone.Warn)),
        ),
        Panel(
            "Time of a reconcile",
            "From taking a service from the queue to its result.",
            Kind.Lines,
            Unit.Seconds,
            _quantiles("controller_runtime_reconcile_time_seconds", _OURS),
            _IDLE,
        ),
        Panel(
            "Time in the queue",
            "How long a service waited for a worker.",
            Kind.Lines,
            Unit.Seconds,
            _quantiles("workqueue_queue_duration_seconds", _NAMED),
            _IDLE,
        ),
        Panel(
            "Services in the queue",
            "Services that wait for a worker. Above 100 for long: alert GraphpodQueueBacklog.",
            Kind.Lines,
            Unit.Count,
            (Query(f"max by (namespace, pod) (workqueue_depth{{{_NAMED}}} {_LEADS})", "{{pod}}"),),
            levels=(Level(100, ALERT_ABOVE),),
        ),
        Panel(
            "Workers, busy and all",
            "Workers that are busy, and all of them.",
            Kind.Lines,
            Unit.Count,
            (
                Query(
                    f"max by (namespace, pod) (controller_runtime_active_workers{{{_OURS}}} {_LEADS})", "{{pod}} busy"
                ),
                Query(
                    f"max by (namespace, pod) (controller_runtime_max_concurrent_reconciles{{{_OURS}}} {_LEADS})",
                    "{{pod}} all",
                ),
            ),
        ),
        Panel(
            "Age of the longest reconcile",
            "Of the worker that has had its service longest; 0: none is busy. Above 60 s: alert "
            "GraphpodReconcileStuck.",
            Kind.Lines,
            Unit.Seconds,
            (
                Query(
                    f"max by (namespace, pod) (workqueue_longest_running_processor_seconds{{{_NAMED}}} {_LEADS})",
                    "{{pod}}",
                ),
            ),
            levels=(Level(60, ALERT_ABOVE),),
        ),
        Panel(
            "Services put into the queue",
            "By events and resyncs, and again after an error. Good: no line of errors above 0.",
            Kind.Lines,
            Unit.PerSecond,
            (
                Query(f"sum({_rate(f'workqueue_adds_total{{{_NAMED}}}')} {_MINE})", "put"),
                Query(f"sum({_rate(f'workqueue_retries_total{{{_NAMED}}}')} {_MINE})", "again after an error"),
            ),
            width=12,
        ),
        Panel(
            "Time that busy workers have worked",
            "Seconds since they took their services, of all busy workers together; 0: none is busy.",
            Kind.Lines,
            Unit.Seconds,
            (Query(f"max by (namespace, pod) (workqueue_unfinished_work_seconds{{{_NAMED}}} {_LEADS})", "{{pod}}"),),
            width=12,
        ),
    ),
)

API = Section(
    "API server",
    (
        Panel(
            "Requests to the API server, by status code",
            "404: an object that is not there yet. 409: a conflict that is tried again. <error>: no answer.",
            Kind.Stacked,
            Unit.RequestsPerSecond,
            (Query(f"sum by (code) ({_rate(f'rest_client_requests_total{{{_HERE}}}')} {_MINE})", "{{code}}"),),
        ),
        Panel(
            "Watches that ended with an error",
            "Each was restarted. Good: 0.",
            Kind.Lines,
            Unit.PerSecond,
            (
                Query(
                    f"sum by (namespace, pod) ({_rate(f'graphpod_operator_watch_failures_total{{{_HERE}}}')})",
                    "{{pod}}",
                ),
            ),
        ),
        Panel(
            "Objects too large to read",
            "Objects that the operator leaves alone. Good: 0.",
            Kind.Number,
            Unit.Count,
            (Query("sum(graphpod_operator_object_skipped) or vector(0)", "objects"),),
            steps=((LOWEST, Tone.Good), (1, Tone.Bad)),
            width=4,
        ),
        Panel(
            "Optional kinds that cannot be listed",
            "Their conversion webhook or their own API server is down. Services that need them wait. Good: 0.",
            Kind.Number,
            Unit.Count,
            (Query("sum(max by (kind) (graphpod_operator_kind_unlisted)) or vector(0)", "kinds"),),
            steps=((LOWEST, Tone.Good), (1, Tone.Bad)),
            width=4,
        ),
        Panel(
            "Time of a request to the API server",
            "Until it began to answer, by verb: the mean, and 99 % (p99) took less.",
            Kind.Lines,
            Unit.Seconds,
            (
                Query(
                    "histogram_quantile(0.99, sum by (le, verb) "
                    f"({_rate(f'rest_client_request_duration_seconds_bucket{{{_HERE}}}')} {_MINE}))",
                    "{{verb}} p99",
                ),
                Query(
                    "sum by (verb) "
                    f"({_rate(f'rest_client_request_duration_seconds_sum{{{_HERE}}}')} {_MINE})"
                    " / sum by (verb) "
                    f"({_rate(f'rest_client_request_duration_seconds_count{{{_HERE}}}')} {_MINE})",
                    "{{verb}} mean",
                ),
            ),
            "Empty while no request is answered.",
        ),
        Panel(
            "Memory of the operator",
            "Resident bytes of each replica.",
            Kind.Lines,
            Unit.Bytes,
            (Query(f"max by (namespace, pod) (process_resident_memory_bytes{{{_HERE}}} {_MINE})", "{{pod}}"),),
        ),
        Panel(
            "CPU of the operator, in cores",
            "Cores that each replica uses: 0.01 is 1 % of one.",
            Kind.Lines,
            Unit.Number,
            (Query(f"sum by (namespace, pod) ({_rate(f'process_cpu_seconds_total{{{_HERE}}}')} {_MINE})", "{{pod}}"),),
        ),
    ),
)

BOARD = Board(
    "operator",
    "graphpod / Operator",
    "The services that the operator manages, its queue, and its requests to the API server.",
    (Variable("namespace", "graphpod_operator_build_info, namespace"),),
    (SERVICES, QUEUE, API),
    (
        Mark(
            "Starts of operators",
            f"max by (namespace, pod) (process_start_time_seconds{{{_HERE}}} {_MINE})",
            "start of operator {{pod}}",
        ),
        Mark(
            "Starts of pods",
            "max by (namespace, pod) (process_start_time_seconds and on (job, instance) graphpod_build_info)",
            "start of {{namespace}}/{{pod}}",
        ),
        Mark(
            "Pods get Ready",
            "max by (namespace, pod) (graphpod_ready_timestamp_seconds)",
            "{{namespace}}/{{pod}} is Ready",
        ),
    ),
)
