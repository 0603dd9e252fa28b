"""The page of `graphpod why`: verdict first, one next step, and whatever stands in the objects."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from graphpod_operator.cache.pod import Pod
from graphpod_operator.conditions.message import sentence
from graphpod_operator.conditions.reasons import Reason
from graphpod_operator.explain.text import plain
from graphpod_operator.schema.crd import definition
from graphpod_operator.terminal.values.drafts import ADVICE, Drafts
from graphpod_operator.terminal.values.scrape import scrape
from graphpod_operator.terminal.values.warmup import PodState, start_of
from graphpod_operator.terminal.views.next_step import COMMANDS, next_step
from graphpod_operator.terminal.views.page import OPERATOR, Findings, age, as_dict, judged, page
from tests.unit.operator.objects import pod, report
from tests.unit.operator.terminal.expositions import exposition
from tests.unit.operator.terminal.services import service

NOW = datetime(2026, 1, 1, 1, tzinfo=UTC)


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    since = "2026-01-01T00:55:00Z"
    return {
        "type": kind, "status": status, "reason": reason, "message": message,
        "observedGeneration": 1, "lastTransitionTime": since,
    }  # fmt: skip


def findings(*conditions: dict[str, Any], **status: Any) -> Findings:
    return Findings(service(conditions=list(conditions), **status), (), (), (), NOW)


READY = condition("Ready", "True", "Ready")
FAILED = condition("Ready", "False", "CaptureFailed", "size 8 failed; set spec.graph.onCaptureFailure: Degrade")


def test_a_failed_capture_is_a_verdict_a_step_and_a_command() -> None:
    found = findings(FAILED, condition("Stalled", "True", "CaptureFailed"))
    lines = page(found, 112).splitlines()
    assert lines[0] == "team-a/demo is not Ready: CaptureFailed. Waiting does not help."
    at = next(number for number, line in enumerate(lines) if line.startswith("Next step: "))
    assert lines[at] == "Next step: set spec.graph.onCaptureFailure: Degrade, or choose another policy"
    patch = '{"spec": {"graph": {"onCaptureFailure": "Degrade"}}}'
    assert lines[at + 1] == f"  kubectl -n team-a patch gisvc demo --type=merge -p '{patch}'"
    assert judged(found).exit_code == 4


def test_a_ready_service_needs_no_step() -> None:
    found = findings(READY, condition("Degraded", "False", "AsPlanned"))
    text = page(found, 112)
    assert text.startswith("team-a/demo is Ready: 2/2 pods serve; prefill Breakable, decode Full; 26/26 captured\n")
    assert "Next step" not in text
    assert (judged(found).exit_code, as_dict(found)["nextStep"]) == (0, None)


def test_graphs_beside_a_refused_spec_are_those_of_the_last_accepted_one() -> None:
    def titles(accepted: str) -> list[str]:
        found = findings(READY, condition("Accepted", accepted, "SpecInvalid"))
        return [line for line in page(found, 112).splitlines() if line.startswith("Graphs")]

    assert titles("False") == ["Graphs, of the spec accepted last"]
    assert titles("True") == ["Graphs"]


def test_drafts_are_shown_with_their_share_and_what_to_do_where_they_are_wrong() -> None:
    speculative = {"method": "Ngram", "steps": 3}

    def shown(*bodies: bytes) -> list[str]:
        raw = service(conditions=[READY])
        raw["spec"] = {"engine": {"speculative": speculative}}
        drafts = Drafts.of(raw, [scrape(body, 0.0) for body in bodies])
        assert as_dict(Findings(raw, (), (), (), NOW, drafts))["drafts"].items() >= speculative.items()
        lines = page(Findings(raw, (), (), (), NOW, drafts), 80).splitlines()
        at = next(number for number, line in enumerate(lines) if line.startswith("  drafts   Ngram, 3 a pass; "))
        assert max(map(len, lines[at : at + 2])) <= 80
        return [line.strip() for line in lines[at : at + 2] if "Ngram" in line or "→" in line]

    assert shown() == ["drafts   Ngram, 3 a pass; no pod's counters could be read"]
    assert shown(exposition()) == ["drafts   Ngram, 3 a pass; no pass has verified any yet"]
    good, bad = exposition(drafts=(1000, 400)), exposition(drafts=(3000, 50))
    assert shown(good) == ["drafts   Ngram, 3 a pass; 40% of 1000 were right since the pods started"]
    (head, hint) = shown(good, bad, bad)
    assert head == "drafts   Ngram, 3 a pass; 7% of 7000 were right since the pods started"
    assert hint == "→ fewer than one draft in ten is right: remove spec.engine.speculative"
    assert Drafts.of(service(), ()) is None


def test_of_a_tree_few_drafts_can_be_right_and_they_may_pay_all_the_same() -> None:
    def advice(body: str, **tree: int) -> tuple[str, str]:
        raw = service()
        raw["spec"] = {"engine": {"speculative": {"method": "Eagle3", "steps": 3, **tree}}}
        drafts = Drafts.of(raw, [scrape(body, 0.0)])
        assert drafts is not None
        return drafts.words.partition(";")[0], drafts.advice

    few, fewer = exposition(drafts=(48000, 3000)), exposition(drafts=(48000, 300))
    assert advice(few, topk=16) == ("Eagle3, 48 a pass", "")
    assert advice(few, topk=16, draftTokens=6) == ("Eagle3, 6 a pass", ADVICE)
    assert advice(fewer, topk=16) == ("Eagle3, 48 a pass", ADVICE)
    assert advice(few) == ("Eagle3, 3 a pass", ADVICE)


def test_a_newer_plan_is_offered_with_its_revision_in_the_command() -> None:
    offered = condition("PolicyUpdateAvailable", "True", "NewPolicy", "revision 0a1b2c3d4e would plan Piecewise")
    found = judged(findings(READY, offered))
    assert found.exit_code == 3
    assert found.line == "team-a/demo is Ready, but PolicyUpdateAvailable=True: NewPolicy"
    assert found.step.command == "kubectl -n team-a annotate gisvc demo --overwrite graphpod.dev/adopt=0a1b2c3d4e"


def test_commands_are_about_the_pod_that_the_condition_names_rather_than_that_of_an_earlier_failure() -> None:
    message = "pod demo-group-0-1: exit code 26; see its log: kubectl -n team-a logs demo-group-0-1"
    for named, expected in ((message, "demo-group-0-1"), ("no reading of any pod", "demo-group-0")):
        found = findings(condition("Ready", "False", "CrashLoop", named))
        found.raw["status"]["lastFailure"] = {"reason": "RankStuck", "pod": "demo-group-0"}
        assert judged(found).step.command.split().count(expected) == 1


def test_a_status_of_an_earlier_generation_asks_for_the_operator() -> None:
    raw = service(conditions=[READY])
    raw["metadata"]["generation"] = 2
    for found in (Findings(raw, None, None, None, NOW), findings()):
        said = judged(found)
        assert (said.exit_code, said.reason, said.step.command) == (4, "NotReconciled", OPERATOR)


@pytest.mark.parametrize(
    "reason", [Reason.Sleeping, Reason.SleepPaused, Reason.EngineUnreachable, Reason.DownloadPending]
)
def test_a_command_is_printed_once_though_the_sentence_of_the_condition_ends_with_it(reason: Reason) -> None:
    said = sentence(reason, "2 of 2 pods sleep", "demo", "", "team-a")
    found = findings(condition("Ready", "False", reason.name, said))
    text = page(found, 1000)
    (line,) = [line for line in text.splitlines() if "kubectl" in line]
    assert line == f"  {judged(found).step.command}"
    assert "; or send the pods POST /sleep" in text or reason is not Reason.SleepPaused
    assert "kubectl" not in as_dict(found)["nextStep"]["what"]


def test_a_step_is_printed_once_though_what_serves_stands_behind_it() -> None:
    what, serves = (
        "expert 3 does not divide tensor 4; set spec.parallelism.expert: 2",
        "earlier pods keep serving (1/1)",
    )
    said = sentence(Reason.ParallelismInvalid, what, "demo", after=serves)
    text = page(findings(condition("Ready", "False", "ParallelismInvalid", said)), 1000)
    assert f"  expert 3 does not divide tensor 4; {serves}\n\nNext step: set spec.parallelism.expert: 2\n" in text


def test_a_command_for_something_else_stays_in_the_step() -> None:
    said = sentence(Reason.Unschedulable, "0/3 nodes", "demo", "", "team-a")
    text = page(findings(condition("Ready", "False", "Unschedulable", said)), 1000)
    assert "for what is free: kubectl describe nodes\n  kubectl -n team-a describe pods" in text


def test_logs_are_those_of_the_pod_that_failed() -> None:
    dead = condition("Ready", "False", "EngineDied", "the engine ended")
    failure = {"reason": "EngineDied", "message": "it ended", "pod": "demo-abc-1", "exitCode": 15, "restarts": 3}
    found = findings(dead, lastFailure=failure)
    assert judged(found).step.command == "kubectl -n team-a logs demo-abc-1 --previous"
    assert "  EngineDied (pod demo-abc-1, exit code 15, 3 restarts)" in page(found, 112)


def test_what_the_user_may_not_read_is_said_and_the_rest_is_there() -> None:
    text = page(replace(findings(READY), revisions=None, pods=None, events=None), 80)
    assert " ".join(text.split()).count("not read: your rights do not include it") == 3


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": [3, {"type": "Ready"}, {"type": 7, "status": []}], "graph": [], "lastFailure": "x"},
        {"conditions": [condition("Ready", "False", "AWordOfALaterVersion", "\x1b[2Jhello")], "graph": {"prefill": 1}},
        {"conditions": {"Ready": True}, "graph": {"decisions": [{"rule": 5}, "x"] * 40, "captured": 1}},
    ],
)
def test_a_status_that_a_user_edited_is_shown_as_far_as_it_goes(status: dict[str, Any]) -> None:
    found = Findings(service(**status), (), (), ({"message": 3, "lastTimestamp": "yesterday"},), NOW)
    text = page(found, 80)
    assert all(line.isprintable() for line in text.splitlines())
    json.dumps(as_dict(found))


def test_a_page_of_80_columns_breaks_everything_but_commands() -> None:
    long = condition("Ready", "False", "QuotaExceeded", "the namespace's ResourceQuota admits no more pods " * 5)
    events = [{"type": "Warning", "reason": "R", "message": "m " * 200, "lastTimestamp": "2026-01-01T00:59:00Z"}] * 30
    lines = page(replace(findings(long), events=events), 80).splitlines()
    assert all(len(line) <= 80 for line in lines if "kubectl" not in line)
    assert sum("Warning" in line for line in lines) == 8


def test_a_warm_up_counts_only_of_the_pod_that_was_asked() -> None:
    of = Pod.of(pod(ready=True))
    mine = start_of(of, json.dumps(report(stages=[{"name": "Load", "seconds": 3}])).encode())
    assert mine.warmup == "Ready, 26/26 captured (prefill Breakable, decode Full)"
    assert mine.stages == "Load 3.0 s"
    assert start_of(of, json.dumps(report(name="other")).encode()).warmup.startswith("/warmup answered for another pod")
    assert "without a warm-up report" in start_of(of, b"<html>").warmup
    assert PodState(Pod.of(pod(running=False)), None).kubernetes.startswith("no node")


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_that_needs_action_has_a_command_to_copy(reason: Reason) -> None:
    step = next_step(reason, "team-a", "demo")
    assert bool(step.command) == (reason.row.step != "nothing")
    if step.command:
        assert step.command.split()[0] in ("kubectl", "helm")
        assert "NAME" not in step.command
        assert "POD" not in step.command
        assert step.what


def test_a_step_in_the_conditions_own_words_wins_over_the_tables() -> None:
    network = (
        "let every NetworkPolicy admit the operator's pods to port 8001: kubectl -n team-a describe networkpolicies"
    )
    logs = "for the cause: kubectl -n team-a logs demo-1"
    for own, command in ((network, network.partition(": ")[2]), (logs, logs.partition(": ")[2])):
        message = f"pod demo-1: http://10.0.0.1:8001/warmup; {own}; earlier pods keep serving (1/1)"
        found = next_step(Reason.EngineUnreachable, "team-a", "demo", "demo-1", message)
        assert (found.what, found.command) == (own, command)
    fits = "leave spec.engine.maxModelLen out (Auto), or use a larger GPU"
    found = next_step(Reason.KvCacheTooSmall, "team-a", "demo", "demo-1", f"pod demo-1: too small; {fits}")
    assert (found.what, found.command) == (fits, "kubectl -n team-a edit gisvc demo")


@pytest.mark.parametrize("command", sorted({command for command in COMMANDS.values() if " patch " in command}))
def test_a_patch_sets_a_field_of_the_api(command: str) -> None:
    found = re.search(r"-p '(.*)'", command)
    assert found is not None
    value = json.loads(found[1])
    schema = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    while isinstance(value, dict):
        ((key, value),) = value.items()
        schema = schema["properties"][key]
    assert "enum" not in schema or value in schema["enum"]


@pytest.mark.parametrize(
    ("since", "text"),
    [("2026-01-01T00:59:30Z", "30s"), ("2026-01-01T00:30:00Z", "30m"), ("2025-12-25T00:00:00Z", "7d"), ("soon", "")],
)
def test_an_age_is_short(since: str, text: str) -> None:
    assert age(since, NOW) == text


def test_plain_text_has_no_colours() -> None:
    assert "\x1b" not in page(findings(FAILED), 80, plain)
