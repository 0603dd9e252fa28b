"""`graphpod explain gisvc/NAME`: what runs in the cluster, and what adopting newer rules would change."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import graphpod_policy
from graphpod_operator import cli
from graphpod_operator.cache.child import Child
from graphpod_operator.cache.service import Service
from graphpod_operator.explain import live_object
from graphpod_operator.install.engine_images import Images
from graphpod_operator.install.installation import Installation
from graphpod_operator.plan.desired_children import desire
from graphpod_operator.plan.desired_state import Desired
from graphpod_operator.plan.plan_input import PlanInput
from graphpod_operator.render.pod import template as pod_template
from graphpod_policy import Phase
from tests.unit.operator.explain.plain import PLAIN, Explain
from tests.unit.operator.objects import UID, remembered


def live(text: str, **graph: Any) -> str:
    raw = yaml.safe_load(text)
    raw["metadata"] |= {"namespace": "ns", "uid": UID, "resourceVersion": "1"}
    phases = {phase.value: {"planned": planned} for phase, planned in zip(Phase, ("Breakable", "Full"), strict=True)}
    status = {"captured": "26/26", "resolverRevision": "2026-01-01.1", "configHash": "0123456789", **phases, **graph}
    return json.dumps({**raw, "status": {"graph": status}})


def test_a_live_service_tells_what_runs_and_what_adopting_newer_rules_would_change(run: Explain) -> None:
    running = {"prefill": {"planned": "Piecewise", "effective": "Disabled"}}
    _, told, _ = run(live(PLAIN, **running))
    assert "prefill   planned Piecewise, running Disabled" in told
    assert "decode    planned Full, running nothing yet" in told
    assert "(prefill Piecewise → Breakable) and replaces every pod" in told
    _, told, _ = run(live(PLAIN, **running), "-o", "json")
    assert json.loads(told)["live"]["adopting"]["changes"] is True


def test_a_live_service_of_the_same_rules_would_not_change(run: Explain) -> None:
    _, told, _ = run(PLAIN, "-o", "json")
    same = {"configHash": json.loads(told)["configHash"], "resolverRevision": graphpod_policy.RESOLVER_REVISION}
    _, told, _ = run(live(PLAIN, **same))
    assert "Adopting the same rules changes nothing in the engine's configuration." in told


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"graph": {}},
        {"graph": {"prefill": {}}},
        {"graph": {"prefill": None, "decode": "Full", "captured": 3, "configHash": []}},
        {"graph": {"captured": "1/2"}, "conditions": [{"type": "EngineUpdateAvailable", "status": "True"}, 3]},
        {"graph": {"captured": "1/2"}, "conditions": {"type": "Ready"}},
        "none",
    ],
)
def test_a_status_that_somebody_edited_is_explained_as_far_as_it_goes(run: Explain, status: Any) -> None:
    raw = {**json.loads(live(PLAIN)), "status": status}
    code, told, error = run(json.dumps(raw))
    assert (code, error) == (0, "")
    if isinstance(status, dict) and status.get("graph"):
        assert "planned unknown, running nothing yet" in told
    assert run(json.dumps(raw), "-o", "json")[0] == 0


OFFER = "revision 0a1b2c3d4e: prefill Piecewise"
ADOPT = "kubectl -n ns annotate inferenceservices.graphpod.dev demo --overwrite graphpod.dev/adopt=0a1b2c3d4e"


def test_an_update_that_the_operator_offers_is_told_with_the_command_that_adopts_it(run: Explain) -> None:
    raw = json.loads(live(PLAIN))
    raw["status"]["conditions"] = [
        {"type": "Ready", "status": "True", "message": "serves"},
        {"type": "PolicyUpdateAvailable", "status": "True", "message": f"{OFFER}; {ADOPT}"},
        {"type": "EngineUpdateAvailable", "status": "False", "message": "none"},
    ]
    told = run(json.dumps(raw))[1]
    assert "  PolicyUpdateAvailable: revision 0a1b2c3d4e: prefill Piecewise\n" in told
    assert told.count("annotate") == 1
    assert "    kubectl annotate gisvc demo -n ns graphpod.dev/adopt=0a1b2c3d4e --overwrite\n" in told
    adopting = json.loads(run(json.dumps(raw), "-o", "json")[1])["live"]["adopting"]
    assert adopting["offered"] == "0a1b2c3d4e"
    assert adopting["offers"] == [f"PolicyUpdateAvailable: {OFFER}; {ADOPT}"]


def test_what_this_program_would_make_differently_is_told_by_name_and_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = json.loads(live(PLAIN))
    kept = desire(PlanInput(Service.of(raw), Installation(Images("old", "old"))))
    assert isinstance(kept, Desired)
    monkeypatch.setattr(live_object, "fetch", lambda namespace, name: (raw, (remembered(kept),)))
    assert cli.main(["explain", "gisvc/demo", "-n", "ns"]) == 0
    told = capsys.readouterr().out
    assert ", one of 1 kept; image old\n" in told
    assert "  This program would create the same pods, except for their image.\n" in told
    monkeypatch.setattr(pod_template, "EXIT_SECONDS", pod_template.EXIT_SECONDS + 1)
    assert cli.main(["explain", "gisvc/demo", "-n", "ns", "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["live"]["pinned"]["differences"]
    assert row["path"] == "pod.terminationGracePeriodSeconds"
    assert row["after"] == row["before"] + 1


def test_a_live_service_is_fetched_from_the_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, str]] = []

    def fetch(namespace: str, name: str) -> tuple[dict[str, Any], tuple[Child, ...]]:
        asked.append((namespace, name))
        return json.loads(live(PLAIN)), ()

    monkeypatch.setattr(live_object, "fetch", fetch)
    kinds = ("gisvc", "inferenceservices.graphpod.dev", "inferenceservice.graphpod.dev", "inferenceservices")
    for kind in kinds:
        assert cli.main(["explain", f"{kind}/demo", "-n", "ns"]) == 0
    assert cli.main(["explain", "demo", "-n", "ns"]) == 0
    assert asked == [("ns", "demo")] * (len(kinds) + 1)
    assert "In the cluster" in capsys.readouterr().out
    for context in ("team-a", None):
        monkeypatch.setattr(live_object, "namespace", lambda context=context: context)
        assert cli.main(["explain", "gisvc/demo"]) == 0
    assert asked[-2:] == [("team-a", "demo"), ("default", "demo")]


def test_a_live_service_whose_new_spec_is_refused_has_nothing_to_adopt(run: Explain) -> None:
    raw = json.loads(live(PLAIN))
    raw["spec"]["engine"] = {"deterministic": True}
    told = run(json.dumps(raw))[1]
    assert "the spec: there is nothing to adopt.\n" in told
    assert "replaces every pod" not in told
    found = json.loads(run(json.dumps(raw), "-o", "json")[1])["live"]
    assert (found["decode"]["adopted"], found["adopting"]["changes"]) == (None, False)


def test_a_live_service_tells_what_its_pods_serve(run: Explain) -> None:
    told = "context 40960 (Auto), batch 256 (Auto), 1.2M KV tokens"
    raw = json.loads(live(PLAIN))
    raw["status"]["engine"] = {"maxModelLen": 40960, "maxBatch": 256, "kvTokens": 1_200_000, "display": told}
    assert f"  serves    {told}\n" in run(json.dumps(raw))[1]
    found = json.loads(run(json.dumps(raw), "-o", "json")[1])
    assert found["live"]["limits"] == {"maxModelLen": 40960, "maxBatch": 256, "kvTokens": 1_200_000}


def test_without_a_cluster_it_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "kubeconfig").write_text("apiVersion: v1\nkind: Config\n")
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    assert cli.main(["explain", "gisvc/demo"]) == 2
    complained = capsys.readouterr().err
    assert complained.startswith("error: gisvc/demo: no cluster to ask: ")
    assert complained.endswith("; set KUBECONFIG\n")


def test_a_kubeconfig_that_is_not_there_is_one_line_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    nowhere = str(tmp_path / "kubeconfig")
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", nowhere)
    assert cli.main(["explain", "gisvc/demo"]) == 2
    said = f"error: gisvc/demo: no cluster to ask: no kubeconfig at {nowhere}; set KUBECONFIG\n"
    assert capsys.readouterr().err == said
