"""Where downloads go: names that Kubernetes takes, the same for all who ask for the same, and no other's."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_operator.api.weights_uri import SCHEMES
from graphpod_operator.intent.asked_downloads import Download, downloads
from graphpod_operator.intent.model_uri import ModelUri

LABEL = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
OBJECT = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
URIS = st.one_of(
    *(
        st.from_regex(f"{one.name}://{one.pattern}", fullmatch=True).filter(lambda uri: len(uri) <= 512)
        for one in SCHEMES[1:]
    )
)


@given(URIS, URIS, st.sampled_from(("a", "b-weights")))
def test_names_are_those_of_labels_and_jobs_and_differ_where_the_downloads_do(one: str, other: str, claim: str) -> None:
    first, second = (Download(ModelUri.parse(uri), claim) for uri in (one, other))
    assert LABEL.fullmatch(first.folder)
    assert len(first.folder) <= 63
    assert OBJECT.fullmatch(first.job)
    assert len(first.job) <= 63
    assert (first.folder == second.folder) == (one == other)
    assert Download(first.uri, "another").job != first.job


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("hf://HuggingFaceTB/SmolLM2-135M-Instruct@main", "smollm2-135m-instruct"),
        ("hf://org/name@main/onnx", "onnx"),
        ("s3://bucket/models/Llama_3/", "llama-3"),
        ("gs://bucket", "bucket"),
        ("https://host/dir/model.tar.gz", "model"),
        ("oci://reg.example:5000/team/model:v1", "model"),
        (f"hf://org/{'x' * 90}", "x" * 40),
    ],
)
def test_a_folder_is_readable(uri: str, words: str) -> None:
    assert ModelUri.parse(uri).folder.rpartition("-")[0] == words


def test_another_checksum_is_another_folder() -> None:
    uri = "https://host/model.tar"
    assert ModelUri.parse(uri, "a" * 64).folder != ModelUri.parse(uri, "b" * 64).folder


def test_a_draft_model_is_a_download_of_its_own_on_the_same_claim() -> None:
    spec = {
        "model": {"uri": "hf://o/n", "cache": {"size": "1Gi"}},
        "engine": {"speculative": {"method": "Eagle3", "draftModel": "hf://o/head"}},
    }
    model, draft = downloads("demo", spec)
    assert (model.claim, draft.claim) == ("demo-weights", "demo-weights")
    assert model.job != draft.job


@pytest.mark.parametrize("spec", [{}, {"model": None}, {"model": {"uri": 7, "cache": {"claim": "c"}}}, {"model": "x"}])
def test_a_spec_that_cannot_be_read_asks_for_nothing(spec: dict[str, object]) -> None:
    assert downloads("demo", spec) == ()
