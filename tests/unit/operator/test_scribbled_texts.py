"""Texts of annotations, options, pods and Prometheus, whose author may be anybody: read, or refused by one error."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graphpod_operator.advise.reader import by_pod
from graphpod_operator.cache.claim import Claim
from graphpod_operator.cache.fetch_report import FetchReport
from graphpod_operator.cache.job import _names
from graphpod_operator.explain import manifest
from graphpod_operator.explain.admission_warnings import warnings_of
from graphpod_operator.explain.command import _model, _node
from graphpod_operator.explain.input_error import InputError
from graphpod_operator.explain.manifest import ManifestInvalid
from graphpod_operator.handlers.admission_server import NotAReview, checked
from graphpod_operator.install import monitor_labels
from graphpod_operator.install.allow_lists import AllowLists, AllowListsInvalid
from graphpod_operator.install.monitor_labels import LabelsInvalid
from graphpod_operator.install.network_access import Access, AccessInvalid
from graphpod_operator.observe.ladder_use import NoLadderMetrics, phase_uses, samples
from graphpod_operator.terminal.sources.prometheus import loads, queries
from graphpod_policy import Phase
from tests.scribbles import DEEP, LONG, LONGEST_MESSAGE, put, read_or, scribbled
from tests.unit.operator.explain.plain import PLAIN
from tests.unit.operator.handlers.test_admission_server import review
from tests.unit.operator.ladders import exposition
from tests.unit.operator.objects import NAMESPACE, inference_service

NO_JSON = (DEEP, '{"a":' * 50_000, LONG, "", "nul", "\udcff", "null", "5", "[]", "{}")
LISTS = {"volumeTypes": ["emptyDir"], "gateways": ["edge/*"], "sourceHosts": ["host:443"]}
ACCESS = {
    "admin": [{"podSelector": {}}], "http": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "routes": ["edge"],
    "downloads": {"to": [{"namespaceSelector": {}}], "ports": [443]},
}  # fmt: skip
OPTIONS: dict[str, tuple[Callable[[str], object], type[Exception], Any]] = {
    "allowed": (AllowLists.read, AllowListsInvalid, LISTS),
    "access": (Access.read, AccessInvalid, ACCESS),
    "labels": (monitor_labels.read, LabelsInvalid, {"release": "prometheus"}),
}


@pytest.mark.parametrize("text", NO_JSON)
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_that_is_no_json_is_refused(option: str, text: str) -> None:
    read, error, _ = OPTIONS[option]
    with read_or(error):
        read(text)


@given(st.sampled_from(sorted(OPTIONS)), st.data())
def test_an_option_may_hold_anything(option: str, data: st.DataObject) -> None:
    read, error, written = OPTIONS[option]
    with read_or(error):
        read(json.dumps(data.draw(scribbled(written))))


STORED = {"uri": "hf://o/n", "commit": "c", "bytes": 1, "claim": "u"}


def claim(text: str) -> Claim:
    metadata = {
        "name": "weights", "namespace": "n", "uid": "u", "resourceVersion": "1",
        "annotations": {"models.graphpod.dev/folder": text, "stored.graphpod.dev/folder": text},
    }  # fmt: skip
    return Claim.of({"metadata": metadata, "spec": {}})


@given(scribbled(STORED).map(json.dumps))
@example('{"x":' + DEEP)
@example("\ud800")
@example(DEEP)
def test_an_annotation_of_a_claim_or_a_job_and_a_report_of_a_download_may_say_anything(text: str) -> None:
    assert claim(text).stored.keys() <= {"folder"}
    assert all(isinstance(one, str) for one in _names(text))
    report = FetchReport.read(text)
    assert report is None or report.done >= 0


REVIEW = review(inference_service(), inference_service())


@given(scribbled(REVIEW))
@example(put(REVIEW, ("request", "object", "spec"), []))
@example(put(REVIEW, ("request", "oldObject", "metadata"), None))
def test_a_review_may_be_anything(content: Any) -> None:
    with read_or(NotAReview):
        request = checked(json.dumps(content).encode())["request"]
        for sentence in warnings_of(request["object"], request.get("oldObject") or {}):
            assert len(json.dumps(sentence)) < LONGEST_MESSAGE


@pytest.mark.parametrize("text", NO_JSON)
def test_a_body_that_is_no_review_is_refused(text: str) -> None:
    with pytest.raises(NotAReview):
        checked(text.encode(errors="surrogateescape"))


TEXT = exposition({Phase.Prefill: [3, 9], Phase.Decode: [1, 2, 3]})
VALUES = st.sampled_from(["NaN", "+Inf", "-1", "1e400", "1.5.5", LONG, "9" * 32, "", "1e15 7"])


@given(st.integers(0, len(TEXT.splitlines()) - 1), VALUES)
def test_any_number_of_a_pod_s_metrics_may_be_anything(number: int, value: str) -> None:
    lines = TEXT.decode().splitlines()
    lines[number] = f"{lines[number].rpartition(' ')[0]} {value}"
    with read_or(NoLadderMetrics):
        assert phase_uses(samples("\n".join(lines).encode())).keys() == set(Phase)


SERIES = [
    {"metric": {"__name__": "graphpod_graph_requested_rows_sum", "pod": "p", "phase": "decode"}, "value": [1.5, "3"]},
    {"metric": {"__name__": "graphpod_graph_memory_bytes", "pod": "p", "phase": "decode"}, "value": [1.5, "3"]},
]


LADDERS = {"status": "success", "data": {"result": SERIES}}
VALUE = ("data", "result", 0, "value")


@given(scribbled(LADDERS).map(json.dumps))
@example(json.dumps(put(LADDERS, (*VALUE, 1), 10**400)))
@example(json.dumps(put(LADDERS, (*VALUE, 1), "NaN")))
@example(json.dumps(put(LADDERS, VALUE, [])))
@example(DEEP)
def test_what_prometheus_has_of_ladders_may_be_anything(text: str) -> None:
    with read_or(InputError, NoLadderMetrics):
        for found in by_pod(text.encode(), "http://prometheus answered 200").values():
            phase_uses(found)


LABELS = {"namespace": NAMESPACE, "inferenceservice": "demo", "phase": "decode", "reason": "NotCaptured"}
ANSWER = {"status": "success", "data": {"resultType": "vector", "result": [{"metric": LABELS, "value": [1.5, "3"]}]}}


@given(scribbled(ANSWER))
@example(put(ANSWER, (*VALUE, 1), LONG))
def test_what_prometheus_has_of_loads_may_be_anything(answer: Any) -> None:
    for query in queries(None):
        with read_or(InputError):
            loads({query: json.dumps(answer).encode()})


@pytest.mark.parametrize("text", NO_JSON)
def test_what_answers_without_json_is_no_prometheus(text: str) -> None:
    with pytest.raises(InputError):
        loads({queries(None)[0]: text.encode(errors="surrogateescape")})


@pytest.mark.parametrize("text", [text for text in NO_JSON if text != "{}"])
def test_a_file_that_describes_no_model_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=r"config\.json"):
        _model(tmp_path / "config.json")


@pytest.mark.parametrize("node", [f"count={LONG},gpu=H100", f"memory={LONG}", "memory=1e999999999", "", "²", "count=²"])
def test_a_node_that_there_is_not_is_refused(node: str) -> None:
    with read_or(InputError):
        _node(node)


NUMBERS = ("0x" + "f" * 5000, "0" + "7" * 6000, "0b1" + "0" * 20_000, "-0x" + "f" * 5000, LONG, "1_" * 3000 + "1")


@pytest.mark.parametrize("number", NUMBERS, ids=lambda text: text[:4])
@pytest.mark.parametrize("line", ["  replicas: {}", "  engine: {{maxBatch: {}}}", "  engine: {{kvCacheMemory: {}}}"])
def test_a_number_of_too_many_digits_is_refused_in_any_base(line: str, number: str) -> None:
    with pytest.raises(ManifestInvalid, match=r"FILE:8: .*too large for a number|FILE:8: .*is not a number"):
        manifest.read("FILE", f"{PLAIN}{line.format(number)}\n".encode())


SERVICE = inference_service(engine={"maxBatch": 8}, graph={"sizes": {"decode": [1, 2]}}, podTemplate={"env": []})


@given(scribbled(SERVICE))
@example(put(SERVICE, ("metadata", "name"), 10**300))
def test_a_service_in_a_file_may_be_anything(content: Any) -> None:
    text = json.dumps(content).encode("utf-8", "replace")
    with read_or(ManifestInvalid):
        manifest.read("FILE", text)


@given(st.text(max_size=60) | st.lists(st.sampled_from([*"-:{}[]&*!|>'\"#%@a1?~\n\t ", "<<"])).map("".join))
def test_a_text_is_read_or_refused_as_a_file(text: str) -> None:
    with read_or(ManifestInvalid):
        manifest.read("FILE", (PLAIN + text).encode("utf-8", "replace"))
