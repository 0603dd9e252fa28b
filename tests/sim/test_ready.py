"""Services whose engines start as they should."""

from tests.sim.conftest import Stage


def test_a_service_becomes_ready_with_every_graph_captured(stage: Stage, eventually) -> None:
    stage.bring_up()
    eventually(stage.reached("Ready", "True", "Ready"))
    graph = stage.status()["graph"]
    captured, planned = graph["captured"].split("/")
    assert captured == planned
    assert int(planned) > 0
    assert (graph["prefill"]["effective"], graph["decode"]["effective"]) == ("Breakable", "Full")
