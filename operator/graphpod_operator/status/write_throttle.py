"""When a new status is worth a write.

What changes a decision of the reader (a condition's status or reason, the effective policies, the generation) is
written at once, but twice a second at most: pods that come up together cost one write, and somebody who scales to and
fro starts no storm. Details wait until 5 s have passed since the last write; while graphs are captured, also until a
third of the sizes more is done, or a minute has passed. So a start costs few writes however long it takes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from graphpod_operator.api.status import ConditionStatus
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.conditions.types import ConditionType

MOMENT_SECONDS = 0.5
DETAIL_SECONDS = 5.0
CAPTURE_SECONDS = 60.0
CAPTURE_STEP = 1 / 3
"""Part of all planned sizes."""

_CAPTURED = re.compile(r"([0-9]{1,9})/([1-9][0-9]{0,8})")

Status = Mapping[str, Any]


def wait(written: float, old: Status, new: Status, now: float) -> float | None:
    """Seconds until `new` may be written over `old`, which was `written` then: 0 for now, None when there is nothing to
    write. Times are seconds of a clock that only goes forward.
    """
    return None if old == new else max(0.0, written + _pause(old, new) - now)


def _pause(old: Status, new: Status) -> float:
    """Seconds from the last write to that of `new`, at least."""
    if _urgent(old) != _urgent(new):
        return MOMENT_SECONDS
    captures_only = _without_counts(old) == _without_counts(new)
    small_step = abs(_ratio(new) - _ratio(old)) < CAPTURE_STEP
    return CAPTURE_SECONDS if captures_only and small_step else DETAIL_SECONDS


def _urgent(status: Status) -> object:
    graph = status.get("graph") or {}
    return (
        status.get("observedGeneration"),
        graph.get("configHash"),
        [(graph.get(phase) or {}).get("effective") for phase in ("prefill", "decode")],
        sorted(
            (row["type"], row["status"], row["reason"]) for row in status.get("conditions") or () if not _is_detail(row)
        ),
    )


def _is_detail(row: Mapping[str, str]) -> bool:
    """That a pod has got its node is a step of its start like many others; that it gets none is not."""
    return row["type"] == ConditionType.Scheduled and row["status"] != ConditionStatus.false


def _without_counts(status: Status) -> dict[str, Any]:
    graph = {name: value for name, value in (status.get("graph") or {}).items() if name != "captured"}
    for phase in ("prefill", "decode"):
        if phase in graph:
            graph[phase] = {name: value for name, value in graph[phase].items() if name != "sizes"}
    # while graphs are captured the messages, too, say how many
    rows = [
        {**row, "message": ""} if row.get("reason") == Reason.Capturing.name else row
        for row in status.get("conditions") or ()
    ]
    return {**status, "graph": graph, "conditions": rows}


def _ratio(status: Status) -> float:
    """The part of its sizes that is captured; 0 where the text, which anybody may have written, says nothing of it."""
    found = _CAPTURED.fullmatch(str((status.get("graph") or {}).get("captured")))
    return int(found[1]) / int(found[2]) if found is not None else 0.0
