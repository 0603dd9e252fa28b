"""The optional webhook's warnings: what `explain` would say of a service, as kubectl prints it. Pure.

It never refuses, and its words say so: the service is written, and does not run. Without it nothing is unsafe: the
operator judges every stored service again.
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
from graphpod_operator.schema.validation_errors import field_path, mistakes
from graphpod_policy.start.obstacle import SUSPENDED

WARNING_MAX = 250
"""Characters of one warning; the API server cuts longer ones at 256 once they are many."""
WILL_NOT_RUN = "will not run until this is fixed: "
"""How a warning begins about what the operator answers with Accepted=False."""
MOST = 15
"""Warnings of one answer; the API server passes on 4096 characters in all."""

ALL = AllowLists()
"""No list restricts anything."""


def warnings_of(new: Mapping[str, Any], old: Mapping[str, Any], allowed: AllowLists = ALL) -> list[str]:
    """The warnings about a service that is written; `old`: its predecessor, empty without one. Of each an outline
    where it breaks a bound.
    """
    return list(_warnings(new, old, allowed))


def _warnings(new: Mapping[str, Any], old: Mapping[str, Any], allowed: AllowLists) -> Iterator[str]:
    if all(new.get(part) == old.get(part) for part in ("spec", bounds.BREACH)):
        return  # a label, say: who wrote the spec has read the warnings
    metadata = new.get("metadata") or {}
    if bounds.BREACH in new:
        yield _cut(f"{WILL_NOT_RUN}{new[bounds.BREACH]}")
        return
    try:
        spec = Spec.model_validate(new.get("spec"))
    except ValidationError as error:
        for one in mistakes(error)[:MOST]:
            yield _cut(f"{WILL_NOT_RUN}{field_path(('spec', *one.place))}: {one.what}")
        return
    name, namespace = metadata.get("name") or "unnamed", metadata.get("namespace") or ""
    warnings = list(_lines(explain(Manifest("", name, namespace, spec, new), allowed=allowed)))
    yield from warnings[:MOST]
    if len(warnings) > MOST:
        yield f"and {len(warnings) - MOST} more: graphpod explain -f FILE"


def _lines(explanation: Explanation) -> Iterator[str]:
    """What stands against a start first, then each decision with its hint, once for both phases. A suspended service
    has nothing to fix.
    """
    refused = explanation.plan.refused
    for one in explanation.obstacles:
        wanted = one.reason == SUSPENDED
        yield _cut(f"{one.reason}: {one}" if wanted else f"{WILL_NOT_RUN}{one}")
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
