"""A leader's machine that waits for others, and a worker's in a thread."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphpod_policy import EngineConfig, Policy, config_hash
from graphpod_runtime.base.leader import Leader
from graphpod_runtime.engine.ranks.callers import Callers
from graphpod_runtime.engine.ranks.others import Others
from graphpod_runtime.engine.ranks.roster import Roster
from graphpod_runtime.engine.ranks.worker import work
from graphpod_runtime.wire.messages import Fatal
from tests.eventually import Eventually
from tests.ports import free_ports
from tests.unit.runtime.ranks.conftest import config
from tests.unit.runtime.ranks.test_others import Process

KEY = "the key of this group"


@pytest.fixture
def two_machines(two: Path) -> EngineConfig:
    return config(two, Policy.Disabled, Policy.Disabled, pipeline=2, nodes=2)


@pytest.fixture
def roster(two_machines: EngineConfig) -> Iterator[Roster]:
    made = Roster(Leader("127.0.0.1", free_ports()), 2, 2, config_hash(two_machines.canonical()))
    yield made
    made.close()


class Worker:
    """Machine 1 in a thread, with a process for its rank that ends as it is told."""

    def __init__(self, engine: EngineConfig, folder: Path, leader: Leader) -> None:
        self.did: list[str] = []
        self.process = Process(1, self.did)
        self.ended: list[Fatal | None] = []

        def run() -> None:
            self.ended.append(work(engine, folder, leader, 1, lambda meeting, rank: self.process))

        self.thread = threading.Thread(target=run)
        self.thread.start()


def eventually_in_trouble(others: Others) -> Fatal:
    """A cause waits for two seconds only: the first rank has an error by then, which these have not."""
    found: Fatal = Eventually()(others.cause)
    return found


@pytest.fixture
def keyed(two_machines: EngineConfig) -> Iterator[Roster]:
    made = Roster(Leader("127.0.0.1", free_ports(), KEY), 2, 2, config_hash(two_machines.canonical()))
    yield made
    made.close()


def addresses(callers: Callers) -> list[str]:
    """Of those whose connections are open."""
    return list(callers._addresses.values())
