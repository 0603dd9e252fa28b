"""Alerts about the operator.

Other controllers export series of the same names (`workqueue_*`, `controller_runtime_*`, `rest_client_*`), and a second
replica waits with its own queue. So every expression takes the replica that holds our Lease.
"""

from monitoring.rules.commands import LEASE as LEASE_YAML
from monitoring.rules.commands import OPERATORS, SERVICE_MONITORS, managers, operator_log, operator_metrics
from monitoring.rules.row import Alert, Severity, by

LEASE = "graphpod-operator"
CONTROLLER = "inferenceservice"
LEADS = f'and on (job, instance) leader_election_master_status{{name="{LEASE}"}} == 1'
_POD = ("namespace", "pod")


def _share(part: str, whole: str, window: str, over: float) -> str:
    """More than this share of a counter's increases is of one part of its series."""
    return f"{by(_POD)} (rate({part}[{window}]) {LEADS})\n/\n{by(_POD)} (rate({whole}[{window}]) {LEADS})\n> {over:g}"


ALERTS = (
    Alert(
        "GraphpodServiceNotReady",
        Severity.Warning,
        "15m",
        f"{by(('namespace',))} (\n"
        f'  graphpod_operator_service_phases{{phase!~"Ready|Degraded|Sleeping"}} {LEADS}\n) > 0',
        ("namespace",),
        "{{ $value }} InferenceServices are not Ready.",
        "Services do not serve as their spec says. A service that is suspended or starts for a long time counts, too; "
        "one that sleeps by its annotation does not.",
        ("kubectl get gisvc --all-namespaces -o wide | grep -v ' True '",),
        "Run kubectl describe gisvc for a service of the list, and follow docs/troubleshooting.md by its "
        "symptom. Silence the "
        "alert while services are suspended on purpose.",
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
        (operator_log("reconcile failed"),),
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
        (operator_log(), LEASE_YAML, *operator_metrics("^(workqueue|controller_runtime).* [1-9]")),
        "If the log shows errors of the API server, see GraphpodAPIErrors. Otherwise report the log and delete "
        "the operator's "
        "pod: services keep running.",
    ),
    Alert(
        "GraphpodOperatorDown",
        Severity.Critical,
        "5m",
        f'absent(leader_election_master_status{{name="{LEASE}"}})',
        ("name",),
        "No operator of graphpod is scraped.",
        "No operator runs, or Prometheus does not scrape it. Services keep answering, but no change reaches them.",
        (
            OPERATORS,
            "kubectl describe deployments --all-namespaces -l app.kubernetes.io/name=graphpod-operator",
            SERVICE_MONITORS,
        ),
        "If a pod is Ready, give the ServiceMonitor the labels that your Prometheus selects: docs/how-to/monitor.md. "
        "Otherwise the Deployment's conditions and events name why no pod starts.",
    ),
    Alert(
        "GraphpodNoLeader",
        Severity.Critical,
        "2m",
        f'{by(("namespace",))} (leader_election_master_status{{name="{LEASE}"}}) == 0',
        ("namespace",),
        "No operator in {{ $labels.namespace }} holds the Lease.",
        "Operators run and none holds the Lease, so none writes. Services keep answering.",
        (
            LEASE_YAML,
            operator_log("Lease"),
            'kubectl -n "$NAMESPACE" auth can-i update leases '
            '--as "system:serviceaccount:$NAMESPACE:graphpod-operator"',
        ),
        "If the last command says no, run helm upgrade with the chart's own RBAC. If the Lease names a holder "
        "that is gone, "
        "delete the Lease.",
    ),
    Alert(
        "GraphpodQueueBacklog",
        Severity.Warning,
        "10m",
        f'{by(_POD, "max")} (workqueue_depth{{name="{CONTROLLER}"}} {LEADS}) > 100',
        _POD,
        "{{ $value }} services wait for the operator {{ $labels.namespace }}/{{ $labels.pod }}.",
        "More than 100 services wait to be reconciled for 10 minutes. The operator does not keep up.",
        operator_metrics("^(workqueue_depth|rest_client_requests_total)"),
        "If answers are 429, see GraphpodAPIErrors. Otherwise run more workers: set the chart's value extraArgs to "
        '["--workers=32"].',
    ),
    Alert(
        "GraphpodReconcileStuck",
        Severity.Warning,
        "2m",  # a restart of the operator takes less, and the liveness probe ends it after 5 minutes
        f'{by(_POD, "max")} (\n  workqueue_longest_running_processor_seconds{{name="{CONTROLLER}"}} {LEADS}\n) > 60',
        _POD,
        "One reconcile of {{ $labels.namespace }}/{{ $labels.pod }} takes {{ $value | humanizeDuration }}.",
        "One service has held a worker for more than a minute. After 5 minutes the liveness probe restarts the "
        "operator.",
        (operator_log(), *operator_metrics("^rest_client_requests_total")),
        "If the codes show errors of the API server, see GraphpodAPIErrors. Otherwise report the log: the field "
        "object of "
        "its last lines names the service.",
    ),
    Alert(
        "GraphpodApplyConflicts",
        Severity.Warning,
        "30m",
        f"{by(('namespace', 'kind'))} (\n  increase(graphpod_operator_apply_conflicts_total[10m]) {LEADS}\n) > 0",
        ("namespace", "kind"),
        "Another writer owns fields of {{ $labels.kind }} objects that the operator applies.",
        "The API server refuses applies for half an hour, because another writer owns a field of the object.",
        (operator_log("another writer\\|reconcile failed"), managers()),
        "The field object of the log names the service. Stop the manager that is not graphpod from writing to "
        "the object.",
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
        (operator_log("child put back"), managers()),
        "The field child of the log names the object. Stop the manager that is not graphpod, or make its change in the "
        "InferenceService.",
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
        (*operator_metrics("^rest_client_requests_total"), "kubectl get --raw '/readyz?verbose'"),
        "For 429 give the operator's ServiceAccount a FlowSchema with more shares. For 5xx fix the check that "
        "readyz reports "
        "as failed, or the admission webhook that the operator's log names.",
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
        ('kubectl -n "$NAMESPACE" get "$KIND" "$NAME" -o json | wc -c',),
        "Make the object smaller, or delete it.",
    ),
    Alert(
        "GraphpodKindUnlisted",
        Severity.Warning,
        "10m",
        f"{by(('namespace', 'kind'), 'max')} (graphpod_operator_kind_unlisted) > 0",
        ("namespace", "kind"),
        "The operator cannot list {{ $labels.kind }} objects.",
        "The cluster serves a third-party kind, and lists of its objects fail: its conversion webhook or its own API "
        "server is down. Services that need the kind wait, or go on with what was known of it. The operator lists it "
        "again every 10 seconds.",
        (
            'kubectl get "$KIND" --all-namespaces',
            "kubectl get crds -o custom-columns=CRD:.metadata.name,OBJECTS:.spec.names.kind,"
            "SERVICE:.spec.conversion.webhook.clientConfig.service,URL:.spec.conversion.webhook.clientConfig.url "
            '| grep "$KIND"',
            "kubectl get apiservices | grep -v ' True '",
            operator_log("cannot be listed"),
        ),
        "Repair the webhook that the second command names, or the API service that the third one shows as not "
        "available. If the kind is not used any more, delete its CRD.",
    ),
)
