"""The reference pages, made from the tables in the code. `docs/reference/` holds the output; a test compares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from graphpod_operator.api.names import (
    ADOPT_ANNOTATION,
    API_VERSION,
    KIND,
    PAUSED_ANNOTATION,
    QUEUE_LABEL,
    RELOAD_ANNOTATION,
    SLEEP_ANNOTATION,
)
from graphpod_operator.api.status import ServicePhase
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.conditions.types import MEANING, ConditionType
from graphpod_operator.docs import feature_matrix, model_fit, rule_table
from graphpod_operator.docs.markdown import table
from graphpod_operator.schema import crd
from graphpod_policy.metrics import METRICS, MOST_SERIES, OBJECTIVES_NAMED, Process
from graphpod_policy.vllm_metrics import CACHE_CONFIG, PREFIX, VLLM_METRICS

NOTE = "<!-- Made by `graphpod docs`. Do not edit. -->\n\n"


METADATA = (
    (
        f"annotation `{PAUSED_ANNOTATION}`",
        'While "true" the operator observes and reports, and writes only the status. Default: absent.',
    ),
    (
        f"annotation `{ADOPT_ANNOTATION}`",
        "A revision that EngineUpdateAvailable or PolicyUpdateAvailable names. The operator replaces the pods once, "
        "by those of that revision. Default: absent.",
    ),
    (
        f"annotation `{SLEEP_ANNOTATION}`",
        'While "true" every pod sleeps: weights and KV cache leave its device, and no pod is ready. Needs '
        'spec.engine.sleep. The pods wake when it is removed, or "false". Default: absent.',
    ),
    (
        f"annotation `{RELOAD_ANNOTATION}`",
        "1 to 253 characters, such as the name of a revision. When it changes, the pods read the weights in the folder "
        "of spec.model.uri again, one pod after another, without a restart. Needs spec.engine.reload. Default: absent.",
    ),
    (
        f"label `{QUEUE_LABEL}`",
        "Queue of Kueue; copied to the Deployment or LeaderWorkerSet and to its pods, which a change replaces. Kueue "
        "itself refuses a change while pods are ready. Default: absent.",
    ),
)
"""What the operator reads besides the spec."""

PHASES: dict[ServicePhase, str] = {
    ServicePhase.Refused: "Accepted is False: the operator does not apply the spec. Earlier pods keep running.",
    ServicePhase.Suspended: "spec.suspend is true, or spec.replicas is 0.",
    ServicePhase.Sleeping: "Every pod sleeps by the annotation graphpod.dev/sleep.",
    ServicePhase.Downloading: "A Job downloads the weights. Pods of this spec are created once they are complete.",
    ServicePhase.Starting: "Ready is not True yet. Its reason names what the service waits for.",
    ServicePhase.Stalled: "Ready is not True, and waiting does not help. Its message ends with the next step.",
    ServicePhase.Degraded: "Ready is True, and a pod runs a weaker policy than planned.",
    ServicePhase.Ready: "Ready is True, with the planned policies.",
}


def pages() -> dict[str, str]:
    """Every page, by file name."""
    return {
        "conditions.md": conditions(),
        "api.md": fields(),
        "rules.md": rules(),
        "matrix.md": pairs(),
        "models.md": models(),
        "metrics.md": metrics(),
    }


def conditions() -> str:
    """Condition types and reasons."""
    parts = [
        "# Conditions\n\n",
        NOTE,
        "`kubectl describe gisvc NAME` shows the conditions of a service. `Unknown` means that the operator could not "
        "check, `False` that it checked and the condition does not hold. Messages have at most 256 characters and end "
        "with the next step. `observedGeneration` is the generation of the spec that a condition is about.\n\n"
        "The column STATUS of `kubectl get gisvc` is the reason of Ready. `status.phase`, which `graphpod top` shows "
        "as STATUS, has one word for all conditions:\n\n",
        table(("Phase", "Meaning"), [(phase.value, PHASES[phase]) for phase in ServicePhase]),
        "\n"
        "Tools that know kstatus (Flux, Helm 4) read `Reconciling` as in progress, `Stalled` as failed, "
        "and `Ready` otherwise; `kubectl wait --for=condition=Ready gisvc/NAME` waits for the same.\n",
    ]
    for kind in ConditionType:
        rows = [
            (reason.name, row.status.value, row.set_when, row.cleared_when, row.step, "yes" if row.stalled else "")
            for reason in Reason
            if kind in (row := reason.row).types
        ]
        parts.append(f"\n## {kind}\n\n{MEANING[kind]}\n\n")
        if rows:
            parts.append(table(("Reason", "Status", "Set when", "Cleared when", "What to do", "Stalled"), rows))
    announced = [reason for reason in Reason if not reason.row.types]
    parts.append("\n## Events without a condition\n\n")
    events = [(one.name, one.row.set_when, one.row.step) for one in announced]
    parts.append(table(("Reason", "Reported when", "What to do"), events))
    return "".join(parts)


def fields() -> str:
    """The API, field by field."""
    root = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    parts = [f"# {KIND} ({API_VERSION})\n\n", NOTE, "## metadata\n\n"]
    parts.append(table(("Label or annotation", "Description"), METADATA))
    for part in ("spec", "status"):
        parts.append(f"\n## {part}\n\n")
        parts.append(table(("Field", "Type", "Description"), _fields(part, root[part])))
    return "".join(parts)


def rules() -> str:
    """The resolver's rules, and the features they speak of."""
    return "".join(("# Rules\n\n", NOTE, *rule_table.as_markdown()))


def pairs() -> str:
    """Every two features together."""
    return "".join(("# Features together\n\n", NOTE, *feature_matrix.body()))


METRICS_BOUND = f"""\
A pod exports at most {MOST_SERIES[Process.Engine]} series, the operator {MOST_SERIES[Process.Operator]},
`process_*` and `python_*` included. Labels name no service, pod or namespace, with two exceptions: objects that the
operator cannot read, at most 64, and services with objectives in `spec.slo`, at most {OBJECTIVES_NAMED}.
Series with a known set of labels begin at 0: a rate has its first increase.

The histograms of the first token and of whole requests have exemplars in the OpenMetrics format. `request_id` is the
`id` of the answer; `trace_id` comes from the request's `traceparent` header, or is that of a trace that begins here.
Prometheus keeps exemplars with `--enable-feature=exemplar-storage`.

"""


VLLM_NAMES = """
## By vLLM's names

With `spec.engine.vllmMetricNames: true` (or `graphpod-engine serve --vllm-metric-names`) a pod exports these as well,
for gateways, autoscalers and benchmarks that know no other names. Each has the labels `model_name` and `engine`, as
vLLM has. The values are those of the metric that it restates, and so are the buckets of histograms. Names are those of
vLLM 0.33.0; `time_per_output_token_seconds` is the former name of `inter_token_latency_seconds`.

"""


def models() -> str:
    """What models get on GPUs."""
    return "".join(("# Models and GPUs\n\n", NOTE, *model_fit.body()))


def metrics() -> str:
    """Every metric of engine and operator."""
    rows = [(f"`{row.name}`", row.kind.value, row.process.value, ", ".join(row.labels), row.help) for row in METRICS]
    own = table(("Name", "Type", "Process", "Labels", "Meaning"), rows)
    vllms = table(("vLLM's name", "Own labels", "Restates"), _vllm_rows())
    return "".join(("# Metrics\n\n", NOTE, METRICS_BOUND, own, VLLM_NAMES, vllms))


def _vllm_rows() -> Iterable[tuple[str, str, str]]:
    for row in VLLM_METRICS:
        labels = [f"{name}={value}" for name, value in row.fixed] + ([row.split[0]] if row.split is not None else [])
        restates = f"`{row.source}`" if row.source is not None else f"nothing: always {row.constant:g}"
        restates = f"1 less {restates}" if row.negated else restates
        yield f"`{PREFIX}{row.name}`", ", ".join(labels), restates
    yield f"`{PREFIX}{CACHE_CONFIG}`", "block_size, num_gpu_blocks, …", "`graphpod_kv_cache_info` and capacity"


def _fields(path: str, schema: Mapping[str, Any]) -> Iterable[tuple[str, str, str]]:
    for name, child in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        yield f"`{here}`", _type(child), child.get("description", "")
        inner = child.get("items", child)
        yield from _fields(here + ("[]" if inner is not child else ""), inner)


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " \\| ".join(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if "additionalProperties" in schema:
        return f"map of {_type(schema['additionalProperties'])}"
    return str(schema["type"])
