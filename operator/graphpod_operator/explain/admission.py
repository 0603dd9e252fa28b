"""The optional webhook's answer: what `explain` would say of a service, as the warnings kubectl prints. Pure.

It never refuses. Without it nothing is unsafe: the operator judges every stored service again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from graphpod_operator.api.spec import Spec
from graphpod_operator.explain.explanation import Explanation, explain
from graphpod_operator.explain.manifest import Manifest
from graphpod_operator.install.allow_lists import AllowLists
from graphpod_operator.kube import bounds
from graphpod_operator.schema.mistakes import field_path, mistakes

API_VERSION = "admission.k8s.io/v1"
WARNING_MAX = 250
"""Characters of one warning; the API server cuts longer ones at 256 once they are many."""
MOST = 15
"""Warnings of one answer; the API server passes on 4096 characters in all."""


ALL = AllowLists()
"""No list restricts anything."""


class NotAReview(ValueError):
    """What was posted is no AdmissionReview of an InferenceService."""


def answer(review: object, allowed: AllowLists = ALL) -> dict[str, Any]:
    """The AdmissionReview that answers `review`: allowed, with warnings. Raises NotAReview."""
    request = review.get("request") if isinstance(review, Mapping) else None
    if not isinstance(request, Mapping) or not isinstance(request.get("uid"), str):
        raise NotAReview("expected an AdmissionReview with a request and its uid")
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    if told := list(_warnings(request, allowed)):
        response["warnings"] = told
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}


def _warnings(request: Mapping[str, Any], allowed: AllowLists) -> Iterator[str]:
    new, old = request.get("object") or {}, request.get("oldObject") or {}
    if new.get("spec") == old.get("spec"):
        return  # a label, say: who wrote the spec has read the warnings
    metadata = new.get("metadata") or {}
    if (breach := bounds.breach(new.get("spec"))) is not None:
        yield _cut(f"refused: {breach}")
        return
    try:
        spec = Spec.model_validate(new.get("spec"))
    except ValidationError as error:
        for one in mistakes(error)[:MOST]:
            yield _cut(f"refused: {field_path(('spec', *one.place))}: {one.what}")
        return
    name, namespace = metadata.get("name") or "unnamed", metadata.get("namespace") or ""
    told = list(_told(explain(Manifest("", name, namespace, spec, new), allowed=allowed)))
    yield from told[:MOST]
    if len(told) > MOST:
        yield f"and {len(told) - MOST} more: graphpod explain -f FILE"


def _told(explanation: Explanation) -> Iterator[str]:
    """What is refused first, then each decision with its hint, once for both phases."""
    refused = explanation.plan.refused
    for one in explanation.obstacles:
        yield _cut(f"{'refused' if one.code is not None else one.reason}: {one}")
    phases: dict[str, list[str]] = {}
    for decision in explanation.plan.decisions:
        if decision != refused:
            said = f"rule {decision.rule}: {decision.because}; {decision.hint}"
            phases.setdefault(said, []).append(decision.phase.value)
    for said, about in phases.items():
        yield _cut(f"{' and '.join(about)}: {said}")


def _cut(sentence: str) -> str:
    text = " ".join(sentence.split()).rstrip("; ")
    return text if len(text) <= WARNING_MAX else text[: WARNING_MAX - 1] + "…"
