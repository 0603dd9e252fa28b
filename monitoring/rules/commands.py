"""Shell lines of the page of alerts. The only variables in them are labels of the alert, by `row.VARIABLES`."""

PROXY_SECONDS = 5
"""Tries of curl, one a second, until the forwarded port is open."""

_SERVICE = 'kubectl -n "$NAMESPACE"'
_OPERATOR = "app.kubernetes.io/name=graphpod-operator"

DESCRIBE = f'{_SERVICE} describe gisvc "$NAME"'
WIDE = f'{_SERVICE} get gisvc "$NAME" -o wide'
DECISIONS = (
    f'{_SERVICE} get gisvc "$NAME" -o jsonpath=\''
    '{range .status.graph.decisions[*]}{.phase}{" "}{.rule}{": "}{.because}{" → "}{.hint}{"\\n"}{end}\''
)
LOG = f'{_SERVICE} logs "$POD"'

LEASE = f"{_SERVICE} get lease graphpod-operator -o yaml"
OPERATORS = f"kubectl get pods --all-namespaces -l {_OPERATOR}"
SERVICE_MONITORS = f"kubectl get servicemonitors --all-namespaces -l {_OPERATOR} --show-labels"


def pod_metrics(pattern: str) -> tuple[str, ...]:
    """Print series of the alert's pod."""
    return _metrics('"pod/$POD"', 8001, pattern)


def service_metrics(pattern: str) -> tuple[str, ...]:
    """Print series of one pod of the alert's service."""
    return _metrics('"deployment/$NAME"', 8001, pattern)


def operator_metrics(pattern: str) -> tuple[str, ...]:
    """Print series of the alert's replica of the operator."""
    return _metrics('"pod/$POD"', 8080, pattern)


def operator_log(pattern: str = "") -> str:
    """Print what all replicas of the operator in the alert's namespace logged lately."""
    lately = f"{_SERVICE} logs -l {_OPERATOR} --prefix --since=1h --tail=-1"
    return f"{lately} | grep '{pattern}' | tail -n 20" if pattern else f"{lately} | tail -n 100"


def managers() -> str:
    """Print, for each object of the alert's kind that the operator applies, who writes its fields."""
    return (
        'kubectl get "$KIND" --all-namespaces -l app.kubernetes.io/managed-by=graphpod --show-managed-fields '
        '-o jsonpath=\'{range .items[*]}{.metadata.namespace}/{.metadata.name}{": "}'
        '{.metadata.managedFields[*].manager}{"\\n"}{end}\''
    )


def _metrics(whose: str, port: int, pattern: str) -> tuple[str, ...]:
    return (
        f"{_SERVICE} port-forward {whose} {port} > /dev/null &",
        f"curl -sS --retry {PROXY_SECONDS} --retry-delay 1 --retry-connrefused localhost:{port}/metrics "
        f"| grep -E '{pattern}'",
        "kill $!",
    )
