"""What a user does while something breaks: a table."""

from dataclasses import dataclass
from typing import Any

from tests.places import Place
from tests.sim.conftest import annotations

Spec = dict[str, Any]
NAME = "demo"

ONE: Spec = {"replicas": 2, "podTemplate": annotations(seconds="0.5")}
OTHER: Spec = {**ONE, "graph": {"decode": "Disabled"}, "rollout": {"strategy": "Surge"}}
"""Another configuration of the engine, so that all pods are made anew."""


@dataclass(frozen=True)
class Scenario:
    """From one spec to another; None: no service."""

    name: str
    before: Spec | None
    after: Spec | None

    def act(self, place: Place) -> None:
        """What the user does."""
        if self.after is None:
            place.kubectl("delete", "gisvc", NAME, "--wait=false", "--ignore-not-found")
        else:
            place.apply(NAME, **self.after)


CREATE = Scenario("create", None, ONE)
UPDATE = Scenario("update", ONE, OTHER)
DELETE = Scenario("delete", ONE, None)
SCENARIOS = (CREATE, UPDATE, DELETE)
