"""The forms of a uri, names of files from outside, and what is taken of a repository."""

import re
from pathlib import Path

import pytest

from graphpod_sources.names import safe
from graphpod_sources.problem import ROWS, Exit, Problem, Reason
from graphpod_sources.selection import check_config, check_index, selected
from graphpod_sources.uri import parse

DIGEST = "a" * 64


@pytest.mark.parametrize(
    ("text", "place", "path", "revision"),
    [
        ("hf://org/name", "org/name", "", "main"),
        ("hf://org/name@v1.0", "org/name", "", "v1.0"),
        ("hf://org/name@refs%2Fpr%2F3", "org/name", "", "refs/pr/3"),
        ("hf://org/name@main/sub/folder", "org/name", "sub/folder", "main"),
        ("hf://org/name/sub", "org/name", "sub", "main"),
        ("s3://bucket/a/b/", "bucket", "a/b", ""),
        ("gs://bucket", "bucket", "", ""),
        ("az://container/prefix", "container", "prefix", ""),
        ("https://host:8443/a/model.tar.zst?sig=1", "host", "a/model.tar.zst", ""),
        ("oci://registry:5000/a/b:v1", "registry:5000", "a/b", "v1"),
        ("oci://registry/a", "registry", "a", "latest"),
        (f"oci://registry/a:v1@sha256:{DIGEST}", "registry", "a", f"sha256:{DIGEST}"),
        ("file:///models/tiny", "", "/models/tiny", ""),
    ],
)
def test_a_uri_names_a_place_a_path_and_a_revision(text: str, place: str, path: str, revision: str) -> None:
    found = parse(text)
    assert (found.place, found.path, found.revision) == (place, path, revision)


@pytest.mark.parametrize(
    "text",
    [
        *("", "org/name", "ftp://host/x", "hf://name", "hf://../x/y", "hf://org/name@", "hf://org/name@a b"),
        *("hf://org/name/../../etc", "s3://", "s3:///key", "s3://bucket/../other", "https://host", "https://host/"),
        *("https://user:word@host/x.tar", "https://host:99999/x", "http://host/x.tar", "oci://registry", "oci://r/UP"),
        *("oci://r/a@sha256:12", "oci://r/a:" + "t" * 200, "file://host/x", "file:///a/../b", "hf://o/n" + "x" * 3000),
        *("hf://org/na\nme", "s3://bucket/a\\b"),
    ],
)
def test_what_is_no_uri_is_refused_with_the_form_it_should_have(text: str) -> None:
    with pytest.raises(Problem) as caught:
        parse(text)
    assert caught.value.reason is Reason.BadUri
    assert "://" in caught.value.what + caught.value.next_step or text in caught.value.what
    assert len(caught.value.message) < 1000


@pytest.mark.parametrize(
    "name",
    [
        *("../x", "a/../../x", "/etc/passwd", "a//b", "./a", "", "a/./b", "a\\..\\b", "a\0b", "a\nb", "x" * 600),
        *("/".join("a" * 9), ".graphpod.json", ".partial/x", ".GraphPod.json", "x/" + "y" * 201, "\u202ex"),
    ],
)
def test_a_name_that_could_leave_the_folder_or_hide_in_it_is_refused(name: str) -> None:
    with pytest.raises(Problem) as caught:
        safe(name, "hf://org/tiny")
    assert caught.value.reason is Reason.BadArchive
    assert len(caught.value.message) < 500


def test_every_reason_has_a_row_and_those_worth_another_try_exit_with_75() -> None:
    assert set(ROWS) == set(Reason)
    again = {reason for reason in Reason if Problem(reason, "x").exit is Exit.TryAgain}
    assert again == {
        *(Reason.Unreachable, Reason.ServerError, Reason.RateLimited, Reason.Stalled, Reason.Truncated),
    }


def test_the_page_has_every_reason_with_its_code() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/how-to/model-sources.md").read_text()
    rows = dict(re.findall(r"^\| `([A-Z]\w+)` \| (\d+) \|", page, re.MULTILINE))
    assert rows == {str(reason): str(int(Problem(reason, "x").exit)) for reason in Reason}


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (
            ["model.safetensors", "pytorch_model.bin", "modeling.py", "config.json"],
            ["config.json", "model.safetensors"],
        ),
        (["consolidated.safetensors", "model-1.safetensors"], ["model-1.safetensors"]),
        (["consolidated.safetensors", "params.json"], ["params.json", "consolidated.safetensors"]),
        (["model.fp16.safetensors", "model.safetensors"], ["model.safetensors"]),
        (["model.safetensors", "original/consolidated.00.pth", "onnx/model.safetensors"], ["model.safetensors"]),
        (["model.safetensors", "1_Pooling/config.json"], ["1_Pooling/config.json", "model.safetensors"]),
        (["model.safetensors", "README.md", "requirements.txt", "merges.txt"], ["merges.txt", "model.safetensors"]),
        (["model.safetensors", "m.gguf", "pytorch_model.bin.index.json"], ["model.safetensors"]),
        (["m.gguf", "config.json"], ["config.json", "m.gguf"]),
    ],
)
def test_of_a_repository_weights_are_taken_once_and_as_safetensors(names: list[str], taken: list[str]) -> None:
    assert selected(names, (), "hf://org/tiny") == taken


@pytest.mark.parametrize(
    ("names", "reason", "named"),
    [
        (["config.json", "pytorch_model.bin"], Reason.PickledWeights, "pytorch_model.bin"),
        (["config.json", "model.pt"], Reason.PickledWeights, "model.pt"),
        (["config.json"], Reason.NoWeights, "1 files"),
        ([], Reason.NoWeights, "0 files"),
        (["a/model.safetensors"], Reason.NoWeights, "'a'"),
        (["q4.gguf", "q8.gguf"], Reason.NoWeights, "q8.gguf"),
    ],
)
def test_a_repository_without_weights_says_what_it_has(names: list[str], reason: Reason, named: str) -> None:
    with pytest.raises(Problem) as caught:
        selected(names, (), "hf://org/tiny")
    assert caught.value.reason is reason
    assert named in caught.value.message


def test_include_replaces_the_patterns_but_never_brings_pickles_or_code() -> None:
    names = ["a/w.safetensors", "x.bin", "x.py", "x.SO", "notes.md", "q4.gguf", "q8.gguf"]
    assert selected(names, ["*"], "x") == ["notes.md", "a/w.safetensors", "q4.gguf", "q8.gguf"]
    assert selected(names, ["q4*"], "x") == ["q4.gguf"]
    with pytest.raises(Problem, match=r"matches \*\.bin"):
        selected(names, ["*.bin"], "x")


def test_code_of_a_repository_is_refused_where_the_engine_has_nothing_of_its_own_for_it() -> None:
    auto = b'"auto_map": {"AutoModelForCausalLM": "modeling.X"}'
    check_config(b'{"architectures": ["LlamaForCausalLM"], %s}' % auto, "x")
    with pytest.raises(Problem) as caught:
        check_config(b'{"architectures": ["OwnForCausalLM"], "model_type": "own", %s}' % auto, "x")
    assert caught.value.reason is Reason.CodeInRepository
    for content in (b"", b"[]", b"[" * 100_000, b'{"architectures": 3}', b"\xff"):
        with pytest.raises(Problem, match=r"config\.json describes no model"):
            check_config(content, "x")


def test_an_index_that_names_files_which_are_not_there_is_refused() -> None:
    check_index(b'{"weight_map": {"a": "x.safetensors"}}', ["x.safetensors"], "x")
    for content in (b'{"weight_map": {"a": "gone.safetensors"}}', b"{}", b"[" * 100_000):
        with pytest.raises(Problem) as caught:
            check_index(content, ["x.safetensors"], "x")
        assert caught.value.reason is Reason.NoWeights
