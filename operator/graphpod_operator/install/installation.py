"""What the operator's installer decides about every service."""

from __future__ import annotations

from dataclasses import dataclass

from graphpod_operator.install.allow_lists import DEFAULT, AllowLists

EVERYTHING_ALLOWED = AllowLists()


@dataclass(frozen=True, slots=True)
class Installation:
    """Settings of the operator that services are planned with. Default: everything is allowed, pods name their user."""

    allowed: AllowLists = EVERYTHING_ALLOWED
    fixed_user: bool = True
    """Whether new pods name their user and groups; where the cluster assigns them (OpenShift), they must not."""


PERMISSIVE = Installation()
"""For what is planned without an operator: nothing is known of its lists."""
RESTRICTED = Installation(DEFAULT)
"""An operator without settings."""
