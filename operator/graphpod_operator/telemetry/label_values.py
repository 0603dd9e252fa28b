"""Values of metric labels that the code chooses between."""

from __future__ import annotations

from enum import StrEnum


class Result(StrEnum):
    """How a reconcile ended, in controller-runtime's words."""

    Success = "success"
    Later = "requeue_after"
    """Well, and the service is to be looked at again after a while."""
    Conflict = "requeue"
    """Another writer was faster."""
    Error = "error"


class Missing(StrEnum):
    """Why there is no reading of a running pod; the values are the metric's words."""

    Unreachable = "unreachable"
    Mismatch = "mismatch"


class Command(StrEnum):
    """An order to a pod about its weights; the values are paths of its admin port."""

    Sleep = "sleep"
    Wake = "wake"
    Reload = "reload"
