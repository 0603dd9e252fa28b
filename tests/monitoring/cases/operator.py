"""Alerts about the operator."""

from tests.monitoring.cases.case import ACTIVE, FOREIGN, OF_OPERATOR, STANDBY, Case, Fired


def leader(**others: str) -> dict[str, str]:
    """The Lease is held by the first replica."""
    return {
        f'leader_election_master_status{{{ACTIVE},name="graphpod-operator"}}': "1x200",
        f'leader_election_master_status{{{STANDBY},name="graphpod-operator"}}': "0x200",
    }


def services(labels: str, ready: str, count: int) -> dict[str, str]:
    series = f'graphpod_operator_inferenceservices{{{labels},ready="{ready}",prefill="Breakable",decode="Full"}}'
    return {series: f"{count}x60"}


def phases(labels: str, **counts: int) -> dict[str, str]:
    name = f"graphpod_operator_service_phases{{{labels}"
    return {f'{name},phase="{phase}",available="True"}}': f"{count}x60" for phase, count in counts.items()}


def reconciles(labels: str, well: int, wrong: int) -> dict[str, str]:
    name = f'controller_runtime_reconcile_total{{{labels},controller="inferenceservice"'
    return {
        f'{name},result="success"}}': f"0+{well}x60",
        f'{name},result="error"}}': f"0+{wrong}x60",
        f'controller_runtime_reconcile_errors_total{{{labels},controller="inferenceservice"}}': f"0+{wrong}x60",
    }


def waiting(labels: str) -> dict[str, str]:
    return {f'leader_election_master_status{{{labels},name="graphpod-operator"}}': "0x30"}


def depth(labels: str, count: int) -> dict[str, str]:
    return {f'workqueue_depth{{{labels},name="inferenceservice"}}': f"{count}x60"}


def longest(seconds: int) -> dict[str, str]:
    return {f'workqueue_longest_running_processor_seconds{{{ACTIVE},name="inferenceservice"}}': f"{seconds}x60"}


def counted(metric: str, values: str) -> dict[str, str]:
    return {f'graphpod_operator_{metric}_total{{{ACTIVE},kind="Deployment"}}': values}


def answers(code: str, count: int) -> dict[str, str]:
    return {f'rest_client_requests_total{{{ACTIVE},code="{code}",method="GET"}}': f"0+{count}x60"}


def unlisted(labels: str, kind: str) -> str:
    return f'graphpod_operator_kind_unlisted{{{labels},kind="{kind}"}}'


SUCCESS = f"graphpod_operator_last_success_timestamp_seconds{{{ACTIVE}}}"
SKIPPED = 'graphpod_operator_object_skipped{kind="Pod",namespace="team",name="big",pod="one"}'
OF_KIND = {"namespace": "graphpod-system", "kind": "Deployment"}

# fmt: off
OPERATOR = (
    Case(
        "GraphpodServiceNotReady", "both replicas count the same three",
        {
            **leader(),
            **phases(ACTIVE, Starting=2, Refused=1, Ready=5), **phases(STANDBY, Starting=2, Refused=1, Ready=5),
        },
        30,
        Fired({"namespace": "graphpod-system"}, "3 InferenceServices are not Ready."),
    ),
    Case(
        "GraphpodServiceNotReady", "all are, or sleep",
        {**leader(), **phases(ACTIVE, Ready=5, Degraded=1, Sleeping=2)}, 30,
    ),
    Case(
        "GraphpodReconcileErrors", "one of five", {**leader(), **reconciles(ACTIVE, 8, 2)}, 40,
        Fired(OF_OPERATOR, "20% of the reconciles of graphpod-system/one fail."),
    ),
    Case(
        "GraphpodReconcileErrors", "those of another controller of that name",
        {**leader(), **reconciles(ACTIVE, 99, 1), **reconciles(FOREIGN, 1, 9)}, 40,
    ),
    Case(
        "GraphpodOperatorStalled", "half an hour", {**leader(), SUCCESS: "0x60", **services(ACTIVE, "True", 3)}, 30,
        Fired(OF_OPERATOR, "The operator graphpod-system/one has reconciled nothing for 30m 0s."),
    ),
    Case("GraphpodOperatorStalled", "there are no services", {**leader(), SUCCESS: "0x60"}, 30),
    Case(
        "GraphpodOperatorStalled", "one a minute",
        {**leader(), SUCCESS: "0+60x60", **services(ACTIVE, "True", 3)}, 30,
    ),
    Case(
        "GraphpodOperatorDown", "other targets are scraped", {'up{job="node"}': "1x30"}, 10,
        Fired({"name": "graphpod-operator"}, "No operator of graphpod is scraped."),
    ),
    Case("GraphpodOperatorDown", "one runs and waits", waiting(STANDBY), 10),
    Case(
        "GraphpodNoLeader", "two wait",
        {**waiting(ACTIVE), **waiting(STANDBY)}, 10,
        Fired({"namespace": "graphpod-system"}, "No operator in graphpod-system holds the Lease."),
    ),
    Case("GraphpodNoLeader", "one leads", leader(), 10),
    Case(
        "GraphpodQueueBacklog", "150 wait", {**leader(), **depth(ACTIVE, 150), **depth(STANDBY, 500)}, 20,
        Fired(OF_OPERATOR, "150 services wait for the operator graphpod-system/one."),
    ),
    Case(
        "GraphpodQueueBacklog", "the queues of a standby and of another controller",
        {**leader(), **depth(ACTIVE, 5), **depth(STANDBY, 500), **depth(FOREIGN, 500)}, 20,
    ),
    Case(
        "GraphpodReconcileStuck", "two minutes", {**leader(), **longest(120)}, 20,
        Fired(OF_OPERATOR, "One reconcile of graphpod-system/one takes 2m 0s."),
    ),
    Case("GraphpodReconcileStuck", "ten seconds", {**leader(), **longest(10)}, 20),
    Case(
        "GraphpodApplyConflicts", "again and again", {**leader(), **counted("apply_conflicts", "0+1x60")}, 50,
        Fired(OF_KIND, "Another writer owns fields of Deployment objects that the operator applies."),
    ),
    Case("GraphpodApplyConflicts", "three, once", {**leader(), **counted("apply_conflicts", "0 0 3x60")}, 50),
    Case(
        "GraphpodDrift", "again and again", {**leader(), **counted("drift_corrections", "0+1x60")}, 50,
        Fired(OF_KIND, "Something changes Deployment objects again and again, and the operator puts them back."),
    ),
    Case("GraphpodDrift", "three, once", {**leader(), **counted("drift_corrections", "0 0 3x60")}, 50),
    Case(
        "GraphpodAPIErrors", "one of ten, of three kinds",
        {**leader(), **answers("200", 90), **answers("500", 4), **answers("429", 4), **answers("<error>", 2)}, 30,
        Fired(OF_OPERATOR, "10% of the requests of graphpod-system/one fail at the API server."),
    ),
    Case("GraphpodAPIErrors", "what is not found", {**leader(), **answers("200", 50), **answers("404", 50)}, 30),
    Case(
        "GraphpodObjectSkipped", "one pod", {SKIPPED: "1x40"}, 25,
        Fired(
            {"kind": "Pod", "namespace": "team", "name": "big"},
            "Pod team/big is too large for the operator to read.",
        ),
    ),
    Case("GraphpodObjectSkipped", "no longer", {SKIPPED: "1x5 _x40"}, 25),
    Case(
        "GraphpodKindUnlisted", "both replicas, and another kind is listed",
        {unlisted(ACTIVE, "HTTPRoute"): "1x40", unlisted(STANDBY, "HTTPRoute"): "1x40",
         unlisted(ACTIVE, "PodMonitor"): "0x40"}, 20,
        Fired({"namespace": "graphpod-system", "kind": "HTTPRoute"}, "The operator cannot list HTTPRoute objects."),
    ),
    Case("GraphpodKindUnlisted", "for five minutes", {unlisted(ACTIVE, "HTTPRoute"): "1x5 0x40"}, 20),
)
# fmt: on
