"""The board of the operator: the services it manages, its queue, and its talk with the API server."""

from monitoring.boards.row import Board, Kind, Panel, Query, Section, Unit, Variable
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
    return tuple(
        Query(
            f"histogram_quantile({share:g}, sum by (le) ({_rate(f'{histogram}_bucket{{{selector}}}')} {_MINE}))",
            f"p{share * 100:g}",
        )
        for share in (0.5, 0.99)
    )


SERVICES = Section(
    "Services",
    (
        Panel(
            "By Ready",
            "InferenceServices by their Ready condition. Good: all True.",
            Kind.Stacked,
            Unit.Count,
            (Query(f"sum by (ready) (graphpod_operator_inferenceservices{{{_HERE}}} {_LEADS})", "Ready={{ready}}"),),
            "Empty while there are no services.",
        ),
        Panel(
            "By effective policy",
            "InferenceServices by what runs for prefill and decode. Without a policy: no pod has reported yet.",
            Kind.Bars,
            Unit.Count,
            (
                Query(
                    f"sum by (prefill, decode) (graphpod_operator_inferenceservices{{{_HERE}}} {_LEADS})",
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
                    f'max by (pod, instance) (leader_election_master_status{{{_HERE},name="{LEASE}"}})',
                    "{{pod}} {{instance}}",
                ),
            ),
        ),
        Panel(
            "Since the last success",
            "Seconds since the last reconcile that succeeded. Above 900 with services: GraphpodOperatorStalled.",
            Kind.Lines,
            Unit.Seconds,
            (
                Query(
                    f"max by (pod) (time() - graphpod_operator_last_success_timestamp_seconds{{{_HERE}}} {_LEADS})",
                    "{{pod}}",
                ),
            ),
        ),
        Panel(
            "Drift and conflicts",
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
            "Readings of warm-up",
            "Readings a second of pods' warm-up by result. unreachable for long: a NetworkPolicy keeps the "
            "operator out.",
            Kind.Lines,
            Unit.PerSecond,
            (Query(f"sum by (result) ({_rate(f'graphpod_operator_warmup_reads_total{{{_HERE}}}')})", "{{result}}"),),
        ),
        Panel(
            "Policies that became weaker",
            "Times that a service's effective policy became weaker than planned, since the operator started. Good: 0.",
            Kind.Bars,
            Unit.Count,
            (
                Query(
                    "sum by (phase, planned, effective) "
                    f"(graphpod_operator_policy_degradations_total{{{_HERE}}} {_MINE})",
                    "{{phase}} {{planned}} to {{effective}}",
                ),
            ),
            width=12,
        ),
        Panel(
            "From a change to Ready",
            "Seconds until a new or changed service is Ready: what 50 % and 95 % of them stay below, since the "
            "operator started.",
            Kind.Bars,
            Unit.Seconds,
            tuple(
                Query(
                    f"histogram_quantile({share:g}, sum by (le) "
                    f"(graphpod_operator_time_to_ready_seconds_bucket{{{_HERE}}}))",
                    f"p{share * 100:g}",
                )
                for share in (0.5, 0.95)
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
            "Reconciles",
            "Reconciles a second by result. Good: no error.",
            Kind.Stacked,
            Unit.PerSecond,
            (
                Query(
                    f"sum by (result) ({_rate(f'controller_runtime_reconcile_total{{{_OURS}}}')} {_MINE})", "{{result}}"
                ),
            ),
        ),
        Panel(
            "Time of a reconcile",
            "Seconds of one reconcile.",
            Kind.Lines,
            Unit.Seconds,
            _quantiles("controller_runtime_reconcile_time_seconds", _OURS),
            _IDLE,
        ),
        Panel(
            "Time in the queue",
            "Seconds a service waited for a worker.",
            Kind.Lines,
            Unit.Seconds,
            _quantiles("workqueue_queue_duration_seconds", _NAMED),
            _IDLE,
        ),
        Panel(
            "Services that wait",
            "Depth of the queue. Above 100 for long: GraphpodQueueBacklog.",
            Kind.Lines,
            Unit.Count,
            (Query(f"max by (pod) (workqueue_depth{{{_NAMED}}} {_LEADS})", "{{pod}}"),),
        ),
        Panel(
            "Workers",
            "Workers that are busy, and all of them.",
            Kind.Lines,
            Unit.Count,
            (
                Query(f"max by (pod) (controller_runtime_active_workers{{{_OURS}}} {_LEADS})", "{{pod}} busy"),
                Query(
                    f"max by (pod) (controller_runtime_max_concurrent_reconciles{{{_OURS}}} {_LEADS})", "{{pod}} all"
                ),
            ),
        ),
        Panel(
            "Longest reconcile that runs",
            "Seconds of the worker that has had its service longest. Above 60: GraphpodReconcileStuck.",
            Kind.Lines,
            Unit.Seconds,
            (Query(f"max by (pod) (workqueue_longest_running_processor_seconds{{{_NAMED}}} {_LEADS})", "{{pod}}"),),
        ),
    ),
)

API = Section(
    "API server",
    (
        Panel(
            "Requests by answer",
            "Requests a second by status code. 409 is a conflict that is tried again. <error> got no answer.",
            Kind.Stacked,
            Unit.RequestsPerSecond,
            (Query(f"sum by (code) ({_rate(f'rest_client_requests_total{{{_HERE}}}')} {_MINE})", "{{code}}"),),
        ),
        Panel(
            "Watches that ended with an error",
            "Watches a second that were restarted. Good: 0.",
            Kind.Lines,
            Unit.PerSecond,
            (Query(f"sum by (pod) ({_rate(f'graphpod_operator_watch_failures_total{{{_HERE}}}')})", "{{pod}}"),),
        ),
        Panel(
            "Objects too large to be read",
            "Objects that the operator leaves alone. Good: 0.",
            Kind.Number,
            Unit.Count,
            (Query("sum(graphpod_operator_object_skipped) or vector(0)", "objects"),),
        ),
        Panel(
            "Time of a request",
            "Seconds until the API server began to answer: what 99 % of the requests stay below.",
            Kind.Lines,
            Unit.Seconds,
            (
                Query(
                    "histogram_quantile(0.99, sum by (le, verb) "
                    f"({_rate(f'rest_client_request_duration_seconds_bucket{{{_HERE}}}')} {_MINE}))",
                    "{{verb}}",
                ),
            ),
            "Empty while no request is answered.",
        ),
        Panel(
            "Memory of the operator",
            "Resident bytes of each replica.",
            Kind.Lines,
            Unit.Bytes,
            (Query(f"max by (pod) (process_resident_memory_bytes{{{_HERE}}} {_MINE})", "{{pod}}"),),
        ),
        Panel(
            "CPU of the operator",
            "Cores that each replica uses.",
            Kind.Lines,
            Unit.Count,
            (Query(f"sum by (pod) ({_rate(f'process_cpu_seconds_total{{{_HERE}}}')} {_MINE})", "{{pod}}"),),
        ),
    ),
)

BOARD = Board(
    "operator",
    "graphpod / Operator",
    "The services that the operator manages, its queue, and its requests to the API server.",
    (Variable("namespace", "graphpod_operator_build_info, namespace"),),
    (SERVICES, QUEUE, API),
)
