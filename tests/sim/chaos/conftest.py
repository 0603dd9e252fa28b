"""The arena: one operator for all of the folder, behind a proxy and a witness; and what was tried in the end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stubs.proxy import Proxy
from testbed import Cluster
from tests.api.operator.process import USER, Operator
from tests.audit import Audit
from tests.eventually import Eventually
from tests.sim.chaos.arena import Arena
from tests.sim.chaos.tally import asked_for
from tests.sim.chaos.witness import Witness
from tests.sim.fleet import FleetProcess

RESULTS = "GRAPHPOD_CHAOS"
"""Environment variable: the file that keeps the counts; with it their table goes to the terminal."""
TALLY = asked_for(RESULTS)


@pytest.fixture(scope="package")
def far(
    sim: Cluster, fleet: FleetProcess, running_operator: Operator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Proxy, Operator, Witness]]:
    """Instead of the level's operator, which would do the work otherwise."""
    running_operator.stop()
    folder = tmp_path_factory.mktemp("chaos")
    with Proxy(sim.kubeconfig).serving() as proxy, Witness(fleet.url).listening() as witness:
        kubeconfig = proxy.kubeconfig(sim.token_kubeconfig(USER), folder / "kubeconfig")
        operator = Operator(sim, witness.url, folder / "log", kubeconfig=kubeconfig)
        operator.start()
        try:
            yield proxy, operator, witness
            assert not crashes(operator.log), operator.tail()
        finally:
            proxy.board.clear()
            operator.stop()  # a Lease that it does not give back keeps the next one waiting
            running_operator.start()
            Eventually()(running_operator.idle)  # told to stop before it listens to signals, it would end otherwise


@pytest.fixture
def arena(far: tuple[Proxy, Operator, Witness], sim: Cluster, open_place, known: dict) -> Iterator[Arena]:
    """Whole again, however the last test left it."""
    proxy, operator, witness = far
    arena = Arena(sim, proxy, operator, witness, Audit(sim.audit_log), open_place, TALLY, undisturbed=known)
    Eventually(lambda: [sim], logs=[operator.log])(arena.idle, timeout=60)
    yield arena
    proxy.board.clear()


@pytest.fixture(scope="package")
def known() -> dict:
    """The undisturbed runs."""
    return {}


def crashes(log: Path) -> list[str]:
    """Lines of the operator's that tell of a mistake in it; kopf tells so of an error in a watch, which is none."""
    return [line for line in log.read_text().splitlines() if "Traceback" in line and '"logger": "kopf.' not in line]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TALLY.file is not None:
        terminalreporter.write_line(TALLY.table())
