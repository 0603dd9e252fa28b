"""Alerts about the operator.

Other controllers export series of the same names (`workqueue_*`, `controller_runtime_*`, `rest_client_*`), and a second
replica waits with its own queue. So every expression takes the replica that holds our Lease.
"""

from monitoring.rules.row import Alert, Severity, by

LEASE = "graphpod-operator"
CONTROLLER = "inferenceservice"
LEADS = f'and on (job, instance) leader_election_master_status{{name="{LEASE}"}} == 1'
_POD = ("namespace", "pod")

LOG = "kubectl -n graphpod-system logs deployment/graphpod-operator"
PODS = "kubectl -n graphpod-system get pods -l app.kubernetes.io/name=graphpod-operator"
LEADER = "kubectl -n graphpod-system get lease graphpod-operator -o yaml"
METRICS = "kubectl -n graphpod-system port-forward deployment/graphpod-operator 8080 &"


def _metrics(pattern: str) -> tuple[str, ...]:
    return (METRICS, f"curl -s localhost:8080/metrics | grep -E '{pattern}'")


def _share(part: str, whole: str, window: str, over: float) -> str:
    """More than this share of a counter's increases is of one part of its series."""
    return f"{by(_POD)} (rate({part}[{window}]) {LEADS})\n/\n{by(_POD)} (rate({whole}[{window}]) {LEADS})\n> {over:g}"


ALERTS = (
    Alert(
        "GraphpodServiceNotReady",
        Severity.Warning,
        "15m",
        f'{by(("namespace", "ready"))} (\n  graphpod_operator_inferenceservices{{ready!="True"}} {LEADS}\n) > 0',
        ("namespace", "ready"),
        "{{ $value }} InferenceServices have Ready={{ $labels.ready }}.",
        "Services do not serve as their spec says. A service that is suspended or starts for a long time counts, too.",
        (
            "kubectl get gisvc --all-namespaces",
            "kubectl -n NAMESPACE describe gisvc NAME",
        ),
        "Follow docs/troubleshooting.md by the symptom. Silence the alert while services are suspended on purpose.",
    ),
    Alert(
        "GraphpodReconcileErrors",
        Severity.Warning,
        "15m",
        _share(
            f'controller_runtime_reconcile_errors_total{{controller="{CONTROLLER}"}}',
            f'controller_runtime_reconcile_total{{controller="{CONTROLLER}"}}',
            "10m",
            0.1,
        ),
        _POD,
        "{{ $value | humanizePercentage }} of the reconciles of {{ $labels.namespace }}/{{ $labels.pod }} fail.",
        "More than 10 % of the reconciles end in an error, so changes of services do not reach their pods.",
        (f"{LOG} | grep 'reconcile failed'",),
        "The field error of the log line names the object and the refusal. Correct what it names.",
    ),
    Alert(
        "GraphpodOperatorStalled",
        Severity.Critical,
        "5m",
        f"{by(_POD, 'max')} (\n"
        f"  time() - graphpod_operator_last_success_timestamp_seconds > 900\n  {LEADS}\n"
        "  and on (job, instance)\n"
        "    sum by (job, instance) (graphpod_operator_inferenceservices) > 0\n)",
        _POD,
        "The operator {{ $labels.namespace }}/{{ $labels.pod }} has reconciled nothing for "
        "{{ $value | humanizeDuration }}.",
        "There are services, and none was reconciled for 15 minutes. The operator looks at each at least every "
        "10 minutes.",
        (LOG, LEADER, *_metrics("^(workqueue|controller_runtime)")),
        "If the log shows errors of the API server, fix that first. Otherwise delete the operator's pod: services keep "
        "running. Report the log.",
    ),
    Alert(
        "GraphpodOperatorDown",
        Severity.Critical,
        "5m",
        f'absent(leader_election_master_status{{name="{LEASE}"}})',
        ("name",),
        "No operator of graphpod is scraped.",
        "No operator runs, or Prometheus does not scrape it. Services keep answering, but no change reaches them.",
        (PODS, "kubectl -n graphpod-system describe deployment graphpod-operator"),
        "If a pod is Ready, check that Prometheus selects the ServiceMonitor. Otherwise read why the pod does "
        "not start.",
    ),
    Alert(
        "GraphpodNoLeader",
        Severity.Critical,
        "2m",
        f'{by(("namespace",))} (leader_election_master_status{{name="{LEASE}"}}) == 0',
        ("namespace",),
        "No operator in {{ $labels.namespace }} holds the Lease.",
        "Operators run and none holds the Lease, so none writes. Services keep answering.",
        (LEADER, f"{LOG} | grep -i lease"),
        "Check that the API server answers and that the ServiceAccount may update the Lease.",
    ),
    Alert(
        "GraphpodQueueBacklog",
        Severity.Warning,
        "10m",
        f'{by(_POD, "max")} (workqueue_depth{{name="{CONTROLLER}"}} {LEADS}) > 100',
        _POD,
        "{{ $value }} services wait for the operator {{ $labels.namespace }}/{{ $labels.pod }}.",
        "More than 100 services wait to be reconciled for 10 minutes. The operator does not keep up.",
        _metrics("^(workqueue_depth|rest_client_requests_total)"),
        "If answers are 429 or slow, the API server limits the operator. Otherwise raise --workers by extraArgs.",
    ),
    Alert(
        "GraphpodReconcileStuck",
        Severity.Warning,
        "5m",
        f'{by(_POD, "max")} (\n  workqueue_longest_running_processor_seconds{{name="{CONTROLLER}"}} {LEADS}\n) > 60',
        _POD,
        "One reconcile of {{ $labels.namespace }}/{{ $labels.pod }} takes {{ $value | humanizeDuration }}.",
        "One service has held a worker for more than a minute. After 5 minutes the liveness probe restarts the "
        "operator.",
        (LOG, *_metrics("^rest_client_requests_total")),
        "Report the service's YAML and the log.",
    ),
    Alert(
        "GraphpodApplyConflicts",
        Severity.Warning,
        "30m",
        f"{by(('namespace', 'kind'))} (\n  increase(graphpod_operator_apply_conflicts_total[10m]) {LEADS}\n) > 0",
        ("namespace", "kind"),
        "Another writer owns fields of {{ $labels.kind }} objects that the operator applies.",
        "The API server refuses applies for half an hour, because another writer owns a field of the object.",
        (f"{LOG} | grep 'another writer'", "kubectl -n NAMESPACE get deployment NAME -o yaml --show-managed-fields"),
        "Find the manager of the field in managedFields, and stop it from writing that field.",
    ),
    Alert(
        "GraphpodDrift",
        Severity.Warning,
        "30m",
        f"{by(('namespace', 'kind'))} (\n  increase(graphpod_operator_drift_corrections_total[10m]) {LEADS}\n) > 0",
        ("namespace", "kind"),
        "Something changes {{ $labels.kind }} objects again and again, and the operator puts them back.",
        "The operator has corrected the same kind of object for half an hour: another writer changes it again "
        "and again.",
        (f"{LOG} | grep 'child put back'", "kubectl -n NAMESPACE get deployment NAME -o yaml --show-managed-fields"),
        "Find the writer in managedFields and stop it, or make its change in the InferenceService.",
    ),
    Alert(
        "GraphpodAPIErrors",
        Severity.Warning,
        "15m",
        _share('rest_client_requests_total{code=~"5..|429|<error>"}', "rest_client_requests_total", "5m", 0.05),
        _POD,
        "{{ $value | humanizePercentage }} of the requests of {{ $labels.namespace }}/{{ $labels.pod }} fail at "
        "the API "
        "server.",
        "More than 5 % of the operator's requests get 429, 5xx or no answer from the API server. It retries and "
        "is slower.",
        (*_metrics("^rest_client_requests_total"), "kubectl get --raw '/readyz?verbose'"),
        "For 429 look at the API server's priority levels. For 5xx look at etcd and at admission webhooks.",
    ),
    Alert(
        "GraphpodObjectSkipped",
        Severity.Warning,
        "15m",
        f"{by(('kind', 'namespace', 'name'), 'max')} (graphpod_operator_object_skipped) > 0",
        ("kind", "namespace", "name"),
        "{{ $labels.kind }} {{ $labels.namespace }}/{{ $labels.name }} is too large for the operator to read.",
        "An object is larger or nested deeper than the operator reads. It is left alone, and so is a service of "
        "that name.",
        ("kubectl -n NAMESPACE get KIND NAME -o json | wc -c",),
        "Make the object smaller, or delete it.",
    ),
)
