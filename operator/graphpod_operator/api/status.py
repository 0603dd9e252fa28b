"""The status of an InferenceService: what the operator observed, in the API's words. Written by `status`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from graphpod_operator.api.base import ApiModel
from graphpod_policy import Backend, Outcome, Policy, Stage
from graphpod_policy.limits import MOST_CONTEXT, MOST_SIZES

MESSAGE_MAX = 256
MAX_DECISIONS = 32
MAX_ADDRESSES = 16
ADDRESS_MAX = 512

Text = Annotated[str, Field(max_length=MESSAGE_MAX)]
Word = Annotated[str, Field(max_length=64)]
Count = Annotated[int, Field(ge=0)]


class StatusModel(ApiModel):
    """Base of what the operator writes: made by field name."""

    model_config = ConfigDict(populate_by_name=True)


class ConditionStatus(StrEnum):
    """Kubernetes' own words."""

    true = "True"
    false = "False"
    unknown = "Unknown"


class Condition(StatusModel):
    """One condition, in Kubernetes' form."""

    type: Word = Field(description="Name of the condition.")
    status: ConditionStatus = Field(description="True, False, or Unknown when the operator could not check.")
    reason: Word = Field(description="Why, in one word; every word is in the conditions reference.")
    message: Text = Field(description="Why, and the next step.")
    observed_generation: Count = Field(description="Generation of the spec that the condition is about.")
    last_transition_time: Word = Field(description="When the status last changed (RFC 3339).")


class SizeCounts(StatusModel):
    """How far a ladder got."""

    planned: Count = Field(description="Sizes on the planned ladder.")
    captured: Count = Field(description="Sizes captured (the smallest number over the pods).")
    failed: Count = Field(description="Sizes that failed (the largest number over the pods).")


class PhaseStatus(StatusModel):
    """One phase: asked, planned, running."""

    requested: Policy = Field(description="Policy that the spec requests.")
    planned: Policy = Field(description="Policy the rules chose.")
    effective: Policy | None = Field(
        None, description="Policy that runs: the weakest over the pods whose warm-up ended. Absent until one ended."
    )
    display: Word | None = Field(
        None,
        description="The effective policy with its backend, and the planned one where that is stronger: the printer "
        "column. `Full (planned)` until a warm-up ended.",
    )
    sizes: SizeCounts = Field(description="Sizes planned, captured and failed.")
    capture_seconds: float | None = Field(
        None, ge=0, description="Seconds the captures of this phase took (the largest over the pods)."
    )
    self_check: Word | None = Field(None, description="Result of the self-check: Passed, Failed or NotRun.")


class DecisionStatus(StatusModel):
    """One step of a resolver that changed something."""

    rule: Word = Field(description="Id of the rule; every rule is in the rules reference.")
    phase: Word = Field(description="prefill or decode; `prefill, decode` where the rule says the same of both phases.")
    stage: Stage = Field(description="Spec (operator), Engine (before capture) or Runtime.")
    outcome: Outcome = Field(description="What the decision did.")
    because: Text = Field(description="Why.")
    hint: Text = Field(description="What to change to get another result.")


class PodPolicies(StatusModel):
    """What one pod runs; listed only when pods differ."""

    name: Annotated[str, Field(max_length=253)] = Field(description="Name of the pod.")
    prefill: Policy = Field(description="Effective prefill policy of the pod.")
    decode: Policy = Field(description="Effective decode policy of the pod.")


AdvisedLadder = Annotated[
    tuple[Annotated[int, Field(ge=1, le=MOST_CONTEXT)], ...],
    Field(max_length=MOST_SIZES, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
]


class LadderAdviceStatus(StatusModel):
    """Better ladders for the load that the pods serve, with as many graphs and the same largest sizes as today's."""

    message: Text = Field(description="What today's ladders pad, and what the advised ones would.")
    prefill: AdvisedLadder | None = Field(
        None, description="For spec.graph.sizes.prefill. Absent where today's ladder is good, or too little was served."
    )
    decode: AdvisedLadder | None = Field(None, description="For spec.graph.sizes.decode. Absent as above.")


class GraphStatus(StatusModel):
    """What was asked of CUDA graphs, what was planned, and what runs."""

    backend: Backend | None = Field(
        None,
        description="What captures and replays: CudaGraph, or Recorder on a CPU (no speed-up). Absent without graphs.",
    )
    captured: Word | None = Field(
        None,
        description="Captured over planned sizes, such as 26/26; eager where none is planned.",
    )
    prefill: PhaseStatus = Field(description="The prefill phase.")
    decode: PhaseStatus = Field(description="The decode phase.")
    decisions: tuple[DecisionStatus, ...] = Field(
        (),
        max_length=MAX_DECISIONS,
        description="Every rule that changed something, in order; once where it says the same of both phases.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    gates: Annotated[tuple[Word, ...], Field(max_length=32)] = Field(
        (),
        description="Rules that may send a single batch to the eager path.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    pods: tuple[PodPolicies, ...] | None = Field(
        None,
        max_length=64,
        description="The pods and their effective policies. Absent while they agree.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    config_hash: Word | None = Field(None, description="Name of the engine configuration, a hash of its bytes.")
    resolver_revision: Word = Field(description="Revision of the rules that made the plan.")
    budget_seconds: Count = Field(description="Longest start of a container, in seconds (spec.engine.startTimeout).")
    advice: LadderAdviceStatus | None = Field(
        None,
        description="Better ladders than the running ones, by the passes that a pod has served. Read at most once an "
        "hour, and written when it changes. Absent where no other ladder saves 1 % of the rows computed.",
    )
    capture_deaths: Count = Field(
        0,
        description="Starts of the running plan that failed in a capture. After more than spec.graph.retries the "
        "plan becomes weaker.",
    )


class SpeculativeStatus(StatusModel):
    """How the pods draft: the smallest values over them."""

    method: Word = Field(description="How drafts are made.")
    draft_model: Annotated[str, Field(max_length=253)] | None = Field(
        None, description="Name of the draft model's folder. Absent where the method has none."
    )
    steps: Count = Field(description="Drafts of a request in a pass.")
    max_batch: Count = Field(description="Requests up to which a pass has drafts, as given or as each pod measured.")


class EngineStatus(StatusModel):
    """What the pods serve. What the spec leaves to them (Auto) each pod derives: the smallest value over the pods."""

    max_model_len: Count = Field(description="Longest prompt plus answer, in tokens.")
    max_batch: Count = Field(description="Most requests decoded in one pass.")
    kv_tokens: Count = Field(description="Tokens that the KV cache of one pod holds.")
    speculative: SpeculativeStatus | None = Field(
        None, description="How the pods draft. Absent without speculative decoding."
    )
    host_cache_tokens: Count | None = Field(
        None, description="Tokens that the host KV cache of one pod holds. Absent without one."
    )
    display: Word = Field(description="Context, batch and KV tokens as text, for the printer column.")


class ModelStatus(StatusModel):
    """Downloaded weights: where they are, and how far the download is."""

    claim: Annotated[str, Field(max_length=253)] = Field(description="The PersistentVolumeClaim that has them.")
    folder: Word = Field(description="The folder of the claim.")
    commit: Annotated[str, Field(max_length=128)] | None = Field(
        None, description="Commit or digest that the URI was resolved to. Absent until it is, and for plain files."
    )
    download: Annotated[str, Field(max_length=128)] = Field(
        description="How far the download is, such as `12.4 of 16.1 GiB, 410 MB/s, about 9 s left`; `complete` with "
        "the size; or the reason of ModelAvailable."
    )


class PodWeightsStatus(StatusModel):
    """Where the weights of one pod are."""

    name: Annotated[str, Field(max_length=253)] = Field(description="Name of the pod.")
    state: Word = Field(description="Awake, FallingAsleep, Asleep, Waking or Reloading.")
    revision: Annotated[str, Field(max_length=253)] | None = Field(
        None,
        description="Value of graphpod.dev/reload whose weights it serves. Absent before the first.",
    )


class WeightsStatus(StatusModel):
    """Weights that sleep, or that were replaced in place."""

    asleep: Word = Field(description="Pods that sleep, of all whose graphs passed the self-check, such as 1/2.")
    freed_bytes: Count = Field(description="Bytes of device memory that the sleeping pods have freed.")
    reload: Annotated[str, Field(max_length=253)] | None = Field(
        None, description="Value of graphpod.dev/reload that this is about."
    )
    revision: Annotated[str, Field(max_length=253)] | None = Field(
        None,
        description="Value of graphpod.dev/reload whose weights every pod serves. Absent while they differ.",
    )
    pods: tuple[PodWeightsStatus, ...] = Field(
        (),
        max_length=64,
        description="The pods, by name.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


class ServicePhase(StrEnum):
    """How it stands, in one word."""

    Refused = "Refused"
    Suspended = "Suspended"
    Sleeping = "Sleeping"
    Downloading = "Downloading"
    Starting = "Starting"
    Stalled = "Stalled"
    Degraded = "Degraded"
    Ready = "Ready"


class Failure(StatusModel):
    """The last failure of a pod of the current generation, or to create one, that is still unresolved."""

    reason: Word = Field(description="Reason, as in the conditions reference.")
    message: Text = Field(description="What failed.")
    pod: Annotated[str, Field(max_length=253)] | None = Field(
        None, description="Name of the pod. Absent when none can be created."
    )
    exit_code: int | None = Field(None, description="Exit code of the engine, if it ended.")
    restarts: Count = Field(0, description="Restarts of the pod's engine container.")


class Status(StatusModel):
    """What the operator observed."""

    observed_generation: Count = Field(description="Generation of the spec that this status is about.")
    phase: ServicePhase | None = Field(
        None, description="One word for people, derived from the conditions. Do not build automation on it."
    )
    conditions: tuple[Condition, ...] = Field(
        (),
        max_length=16,
        description="Ready; Stalled and Reconciling only while True; Available; Accepted, ModelAvailable, "
        "WorkloadAvailable and GraphsCaptured, which make Ready; Scheduled and Degraded; some only while the spec asks "
        "for them; PolicyUpdateAvailable and EngineUpdateAvailable.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    url: Annotated[str, Field(max_length=512)] | None = Field(
        None,
        description="Address of the OpenAI API inside the cluster. Absent while the service has no pods: before its "
        "weights are downloaded, while it is suspended or scaled to zero, and where no spec was accepted yet.",
    )
    addresses: tuple[Annotated[str, Field(max_length=ADDRESS_MAX)], ...] | None = Field(
        None,
        max_length=MAX_ADDRESSES,
        description="Hosts and paths of the OpenAI API through the gateways of spec.networking.route, while all of "
        "them accept it. Their listeners decide between http and https.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    replicas: Count = Field(0, description="Pods that exist.")
    updated_replicas: Count = Field(0, description="Pods of the current spec.")
    ready_replicas: Count = Field(0, description="Pods that serve.")
    pods: Word | None = Field(None, description="Pods that serve over pods requested, such as 2/3.")
    revision: Word | None = Field(
        None,
        description="Revision of the running pods. The annotation graphpod.dev/adopt takes a newer one, which the "
        "conditions PolicyUpdateAvailable and EngineUpdateAvailable name. Absent while nothing makes pods.",
    )
    selector: Annotated[str, Field(max_length=512)] | None = Field(
        None, description="Label selector of the pods, for autoscalers."
    )
    graph: GraphStatus | None = Field(
        None,
        description="CUDA graphs: requested, planned and running. While the spec is refused, that of the last accepted "
        "spec, which runs on; absent if nothing does.",
    )
    model: ModelStatus | None = Field(
        None, description="Downloaded weights. Absent with pvc://, and while the spec is refused."
    )
    engine: EngineStatus | None = Field(
        None, description="What the pods serve: context, batch and KV cache. Absent until the warm-up of one has ended."
    )
    weights: WeightsStatus | None = Field(
        None,
        description="Weights that sleep or were replaced. Absent without graphpod.dev/sleep and graphpod.dev/reload.",
    )
    last_failure: Failure | None = Field(None, description="The last unresolved failure of a pod.")
