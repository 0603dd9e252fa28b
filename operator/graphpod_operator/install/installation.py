"""What the operator's installer decides about every service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from graphpod_operator.install.allow_lists import AllowLists
from graphpod_operator.install.engine_images import Images
from graphpod_operator.install.network_access import Access


@dataclass(frozen=True, slots=True)
class Installation:
    """Settings of the operator that services are planned with. By default everything is allowed, everybody may reach
    the pods, and the pods name their user.
    """

    images: Images = Images("", "")  # noqa: RUF009 (a tuple)
    allowed: AllowLists = AllowLists()  # noqa: RUF009 (frozen)
    fixed_user: bool = True
    """Whether new pods name their user and groups; where the cluster assigns them (OpenShift), they must not."""
    prometheus: str | None = None
    """Where KEDA asks for the pods' load; empty: nowhere, so services that ask for KEDA are refused. None: what is
    planned without an operator does not know, and assumes it.
    """
    monitor_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of every PodMonitor, by which the installer's Prometheus selects it."""
    access: Access | None = None
    """Who may reach the pods; None: everybody. No NetworkPolicy is made, and one that was is deleted."""
