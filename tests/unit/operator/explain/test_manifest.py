"""What is read from a file, and what is said of one that is wrong: each mistake with line, field, value, next step."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from graphpod_operator.explain import document, manifest
from graphpod_operator.explain.manifest import Complaint, ManifestInvalid
from tests.unit.operator.explain.plain import PLAIN

NO_SPEC = PLAIN.partition("spec")[0]


def nested(levels: int) -> str:
    """A map in a map, and so on."""
    return "{a: " * levels + "1" + "}" * levels


def listed(*services: str) -> str:
    """As `kubectl get -o yaml` prints several."""
    items = "".join("- " + text.replace("\n", "\n  ").rstrip() + "\n" for text in services)
    return f"apiVersion: v1\nkind: List\nmetadata: {{}}\nitems:\n{items}"


def complaints(text: str | bytes) -> list[str]:
    with pytest.raises(ManifestInvalid) as refused:
        manifest.read("FILE", text.encode() if isinstance(text, str) else text)
    return [str(one) for one in refused.value.complaints]


def read(text: str) -> list[manifest.Manifest]:
    return manifest.read("FILE", text.encode())


# what is read


def test_the_services_of_a_list_are_read_and_other_kinds_passed_over() -> None:
    text = listed(PLAIN, "kind: Pod\napiVersion: v1", PLAIN.replace("demo", "other\n  namespace: ns"))
    assert [(one.namespace, one.name) for one in read(text)] == [("default", "demo"), ("ns", "other")]


def test_documents_lists_and_json_may_be_mixed() -> None:
    as_json = json.dumps(yaml.safe_load(PLAIN.replace("demo", "third")))
    assert [one.name for one in read(f"{PLAIN}---\n{listed(PLAIN)}---\n---\n{as_json}\n")] == ["demo", "demo", "third"]


def test_a_service_of_another_project_is_passed_over() -> None:
    foreign = PLAIN.replace("graphpod.dev/v1alpha1", "serving.kserve.io/v1beta1").replace("demo", "foreign")
    assert [one.name for one in read(f"{foreign}---\n{PLAIN}")] == ["demo"]


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16"])
def test_a_file_that_begins_with_a_byte_order_mark_is_read(codec: str) -> None:
    assert manifest.read("FILE", PLAIN.encode(codec))[0].name == "demo"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e9", 1000000000),
        ("8.0", 8),
        ("1.5", 1.5),
        ("0x10", 16),
        ("017", 15),
        ("1_000", 1000),
        ("2026-01-01", "2026-01-01"),
        ("12:30", "12:30"),
        ("'1e9'", "1e9"),
        ("yes", True),
        ("~", None),
        ("", None),
        ("{<<: {x: 1, y: 2}, x: 3}", {"x": 3, "y": 2}),
        ("{1: a, true: b}", {"1": "a", "true": "b"}),
    ],
)
def test_a_value_is_what_kubectl_makes_of_it(written: str, value: object) -> None:
    (found,) = document.documents(f"a: {written}\n")
    assert found.value == {"a": value}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc<\"'é ", max_size=4), inner, max_size=3),
    max_leaves=12,
)


@given(JSON)
def test_json_is_read_as_it_is(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert [found.value for found in document.documents(text)] == [value]


def test_what_is_read_does_not_grow_by_its_aliases() -> None:
    """Each level has its parent twice: written out, they would be 2^60 values."""
    text = "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    (found,) = document.documents(text)
    assert found.value["a1"][0] is found.value["a1"][1]
    assert len(found.lines) < 300
    assert complaints(PLAIN.replace("name: demo", f"name: demo\n  x: {nested(1)}") + f"  engine: {{x: {nested(40)}}}\n")


# what is wrong


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "FILE:1: the file is empty; write a service, or: kubectl get gisvc NAME -o yaml |"),
        ("# nothing\n---\n", "FILE:1: the file is empty"),
        ("\n- a: 1\n", "FILE:2: found a list, expected an object with apiVersion, kind, metadata and spec; write sev"),
        ("hello", 'FILE:1: found "hello", expected an object with apiVersion'),
        ("kind: Pod\napiVersion: v1\n", "FILE:1: kind: no InferenceService (graphpod.dev/v1alpha1) in this file; fou"),
        (listed(), "FILE:2: kind: no InferenceService (graphpod.dev/v1alpha1) in this file; found an empty list"),
        ("a: 1\nb: \x01\n", "FILE:2: the file is not text: character 0x01; use a YAML or JSON file in UTF-8"),
        (b"a: 1\nb: \xff\n", "FILE:2: the file is not text: byte 0xff; use a YAML or JSON file in UTF-8"),
        (
            b"\x7fELF\x02\x01\x01\x00\x00",
            "FILE:1: the file is not text: character 0x7f; use a YAML or JSON file in UTF-8",
        ),
        ("a: [1\nb: 2\n", "FILE:2: not YAML: while parsing a flow sequence, "),
        ("[" * 5000, "FILE:1: nested more than 128 levels deep"),
        ("[" * 5000 + "]" * 5000, "FILE:1: nested more than 128 levels deep"),
        ("".join(" " * level + "-\n" for level in range(200)), "FILE:129: nested more than 128 levels"),
        ("a: &a [*a]\n", "FILE:1: alias *a has no anchor &a before it"),
        ("? [a]\n: 1\n", "FILE:1: not YAML: a key must be text"),
        ("a: !!binary aGk=\n", "FILE:1: tag tag:yaml.org,2002:binary: JSON has no such value; remove the tag"),
        ("a: .inf\n", "FILE:1: .inf is not a number in JSON"),
        ("a: 1e400\n", "FILE:1: 1e400 is too large for a number"),
        ("a: " + "9" * 6000, f"FILE:1: {'9' * 80}… (6000 characters) is too large for a number"),
        (PLAIN.replace("v1alpha1", "v1"), 'FILE:1: apiVersion: expected graphpod.dev/v1alpha1, found "graphpod.dev/'),
        (PLAIN.replace("name: demo", "labels: {}"), "FILE:3: metadata.name: required"),
        (PLAIN.replace("name: demo", "name: 7"), "FILE:4: metadata.name: expected text, found 7"),
        (PLAIN.replace("demo", "Demo"), "FILE:4: metadata.name must begin with a letter"),
        (PLAIN.replace("demo", "x" * 41), "FILE:4: metadata.name must have at most 40 characters"),
        (
            PLAIN.replace("demo", "demo\n  namespace: {x: y}"),
            'FILE:5: metadata.namespace: expected the name of a namespace, found {"x": "y"}; write it as text',
        ),
        (PLAIN + "  replicas: 1\n  replicas: 2\n", "FILE:9: spec.replicas: repeats the key of line 8; remove o"),
        (PLAIN.replace("uri: pvc://weights/model", "{}"), "FILE:6: spec.model.uri: required"),
        (NO_SPEC, "FILE:1: spec.model: required"),
        (PLAIN + "spek: {}\n", "FILE:8: spek: no such field; did you mean spec?"),
        (PLAIN + "replicas: 2\n", "FILE:8: replicas: no such field; expected one of apiVersion, kind, metad"),
        (PLAIN + "data:\n", "FILE:8: data: no such field; "),
        (
            PLAIN.replace("name: demo", "name: demo\n  annotation: {}"),
            "FILE:5: metadata.annotation: no such field; did you mean annotations?",
        ),
        (NO_SPEC + "spec: []\n", "FILE:5: spec: expected an object, found []"),
        (PLAIN + "  graph:\n    prefill: Auto\n    decode: Piecewise\n", "FILE:10: spec.graph.decode: must be one of"),
        (
            PLAIN + "  graph:\n    decode: full\n",
            'FILE:9: spec.graph.decode: must be one of Auto, Full, Breakable, Disabled, found "full"',
        ),
        (
            PLAIN.replace("pvc://", ""),
            "FILE:7: spec.model.uri must begin with one of pvc://, hf://, s3://, gs://, az://, https://, oci://, found",
        ),
        (PLAIN + "  graph:\n    compile: Fast\n", "FILE:9: spec.graph.compile: must be one of Auto, None, Inductor, "),
        (PLAIN + "  engine:\n    maxBtch: 1\n", "FILE:9: spec.engine.maxBtch: no such field; did you mean maxBatch?"),
        (
            PLAIN + "  engine:\n    xyz: 1\n",
            "FILE:9: spec.engine.xyz: no such field; for its fields: kubectl explain gisvc.spec.engi",
        ),
        (PLAIN + "  engine:\n    maxBatch: 0\n", "FILE:9: spec.engine.maxBatch: must be at least 1, found 0"),
        (PLAIN + "  engine:\n    sleep: 'yes'\n", 'FILE:9: spec.engine.sleep: expected true or false, found "yes"'),
        (PLAIN + "  graph:\n    sizes:\n      decode: [2, 1]\n", "FILE:10: spec.graph.sizes.decode: sizes must be in"),
        (
            PLAIN + "  graph:\n    sizes:\n      decode:\n      - 1\n      - 0\n",
            "FILE:12: spec.graph.sizes.decode[1]: must be at least 1, found 0",
        ),
        (
            PLAIN + f"  podTemplate: {nested(40)}\n",
            "FILE:5: spec.podTemplate.a.a: the spec is nested more than 32 levels",
        ),
        (PLAIN + f"  podTemplate: {nested(1200)}\n", "FILE:8: nested more than 128 levels deep"),
        (PLAIN + "  graph: {sizes: {decode: [x]}}\n", "FILE:8: spec.graph.sizes.decode[0]: expected a whole number, f"),
        ("---\nkind: Pod\n---\n" + PLAIN + "  replicas: many\n", "FILE:11: spec.replicas: expected a whole number, f"),
        (listed(PLAIN, PLAIN + "  replicas: many\n"), "FILE:19: spec.replicas: expected a whole number, found"),
        (
            PLAIN + "  engine:\n    kvCacheMemory: lots\n",
            "FILE:9: spec.engine.kvCacheMemory: 'lots' is not a quantity; write a number with an optional suffix",
        ),
    ],
)
def test_a_file_that_is_wrong_is_told_by_line_and_field(text: str | bytes, complaint: str) -> None:
    first, *rest = complaints(text)
    assert first.startswith(complaint)
    assert rest == []


def test_every_mistake_of_every_service_is_told_at_once_in_the_order_of_the_lines() -> None:
    wrong = PLAIN.replace("demo", "Demo") + "  replicas: many\n  engine:\n    maxBatch: 0\n    maxBtch: 1\n"
    rollout = "  rollout: {maxUnavailable: 2}\n  parallelism: {allToAll: DeepEp}\n"
    told = complaints(f"{wrong}---\n{PLAIN}{rollout}")
    assert [one.partition(": ")[0] for one in told] == [f"FILE:{line}" for line in (4, 8, 10, 11, 20, 21)]


@pytest.mark.parametrize("value", ["1", "null", "[1, {x: 2}]", "[[{x: 2}]]", "text"])
def test_a_merge_of_what_is_no_map_is_refused_as_kubectl_does(value: str) -> None:
    (told,) = complaints(PLAIN + f"  <<: {value}\n")
    assert told == "FILE:8: << merges a map or a list of maps, and nothing else"


def test_what_is_larger_than_the_bound_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MOST_BYTES", 1 << 20)
    (told,) = complaints(b"#" * ((1 << 20) + 1))
    assert told == "FILE:1: the file is larger than 1Mi; explain fewer services at a time"


def test_a_long_value_is_cut() -> None:
    (told,) = complaints(PLAIN + f"  replicas: {'x' * 10_000}\n")
    assert len(told) < 200


def test_a_complaint_about_a_whole_file_has_no_field() -> None:
    assert str(Complaint("FILE", 1, "", "empty")) == "FILE:1: empty"
