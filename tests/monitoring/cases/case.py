"""A case of an alert: series and values as promtool writes them, and what fires. The labels that cases share."""

from dataclasses import dataclass

SERVICE = 'namespace="team",inferenceservice="demo"'
POD = f'{SERVICE},pod="demo-1"'
OTHER_POD = f'{SERVICE},pod="demo-2"'
GRAPH = 'policy="Full",backend="CudaGraph"'
ACTIVE = 'namespace="graphpod-system",pod="one",job="graphpod-operator",instance="10.0.0.1:8080"'
STANDBY = 'namespace="graphpod-system",pod="two",job="graphpod-operator",instance="10.0.0.2:8080"'
FOREIGN = 'namespace="kserve",pod="manager",job="kserve",instance="10.0.0.3:8080"'

OF_SERVICE = {"namespace": "team", "inferenceservice": "demo"}
OF_POD = {**OF_SERVICE, "pod": "demo-1"}
OF_OPERATOR = {"namespace": "graphpod-system", "pod": "one"}


@dataclass(frozen=True)
class Fired:
    """One alert, with its labels besides name and severity, and its summary as people read it."""

    labels: dict[str, str]
    summary: str


@dataclass(frozen=True)
class Case:
    """At minute `at` the alert fires as `fired`, and no other of its name; None: it does not fire."""

    alert: str
    title: str
    series: dict[str, str]
    at: int
    fired: Fired | None = None
