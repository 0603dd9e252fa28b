"""/v1/embeddings, /v1/score and /v1/rerank over HTTP, on a random Llama and a real engine."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import openai
import pytest
import torch
from numpy.typing import NDArray
from transformers import LlamaForCausalLM

from graphpod_policy import ExitCode
from graphpod_runtime.front.openai.embeddings.inputs import Cut
from graphpod_runtime.front.openai.embeddings.pooler import Pooler
from graphpod_runtime.front.openai.embeddings.vectors import cosines, scaled
from graphpod_runtime.front.text.tokenizer import Tokenizer
from graphpod_runtime.wire.messages import Pooling
from tests.unit.house.pages import Page

from .conftest import Front, byte_tokenizer
from .page_code import run_blocks
from .test_real_engine import serve, write_llama

PAGE = Page(Path(__file__).parents[4] / "docs/how-to/embeddings.md")
TEXTS = ["The capital of France is", "日本語", "a", "one two three four five six seven eight nine ten"]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LlamaForCausalLM]:
    folder = tmp_path_factory.mktemp("llama")
    return folder, write_llama(folder)


@pytest.fixture(scope="module")
def pod(llama: tuple[Path, LlamaForCausalLM], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    config = json.loads((llama[0] / "config.json").read_text())
    (llama[0] / "config.json").write_text(json.dumps(config | {"matryoshka_dimensions": [8, 16]}))
    front = serve(llama[0], tmp_path_factory.mktemp("pod"))
    front.eventually("ready", lambda: "ready: tiny" in front.log.read_text())
    yield front
    front.process.terminate()
    assert front.ended() == ExitCode.Drained, front.log.read_text()


def expected(model: LlamaForCausalLM, text: str) -> NDArray[numpy.float32]:
    """The last token's state, of length 1, by transformers."""
    with torch.no_grad():
        state = model.model(torch.tensor([byte_tokenizer().encode(text).ids])).last_hidden_state[0, -1]
    found: NDArray[numpy.float32] = (state / state.norm()).numpy()
    return found


def post(pod: Front, path: str, body: object) -> tuple[int, Any]:
    answer = pod.post(path, body)
    return answer.status_code, answer.json()


def vectors(pod: Front, **body: object) -> NDArray[numpy.float64]:
    status, answer = post(pod, "/v1/embeddings", {"model": "tiny"} | body)
    assert status == 200, answer
    assert [item["index"] for item in answer["data"]] == list(range(len(answer["data"])))
    return numpy.array([item["embedding"] for item in answer["data"]])


def test_the_client_of_openai_gets_the_vectors_of_transformers(
    pod: Front, llama: tuple[Path, LlamaForCausalLM]
) -> None:
    client = pod.client()
    plain = client.embeddings.create(model="tiny", input=TEXTS, encoding_format="float")
    packed = client.embeddings.create(model="tiny", input=TEXTS)  # the client's own default is base64
    assert (plain.object, plain.model, plain.data[0].object) == ("list", "tiny", "embedding")
    tokens = sum(len(byte_tokenizer().encode(text).ids) for text in TEXTS)
    assert (plain.usage.prompt_tokens, plain.usage.total_tokens) == (tokens, tokens)
    for text, one, other in zip(TEXTS, plain.data, packed.data, strict=True):
        assert numpy.abs(expected(llama[1], text) - numpy.array(one.embedding)).max() < 1e-5
        assert numpy.abs(numpy.array(one.embedding) - numpy.array(other.embedding)).max() < 1e-6
    status, raw = post(pod, "/v1/embeddings", {"model": "tiny", "input": "a", "encoding_format": "base64"})
    assert status == 200
    assert len(base64.b64decode(raw["data"][0]["embedding"])) == 4 * 48
    assert raw["id"].startswith("embd-")


def test_an_input_is_text_or_tokens_alone_or_in_a_list(pod: Front) -> None:
    ids = [byte_tokenizer().encode(text).ids for text in TEXTS]
    (one,) = vectors(pod, input=TEXTS[0])
    (by_ids,) = vectors(pod, input=ids[0])
    several, several_ids = vectors(pod, input=TEXTS), vectors(pod, input=ids)
    assert numpy.abs(several - several_ids).max() < 1e-5
    assert numpy.abs(numpy.array([one, by_ids]) - several[0]).max() < 1e-5
    many = vectors(pod, input=["a"] * 300)  # more than run and wait together
    assert many.shape == (300, 48)
    (chat,) = vectors(pod, messages=[{"role": "user", "content": "hello"}])
    status, said = post(pod, "/tokenize", {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]})
    assert status == 200
    (same,) = vectors(pod, input=said["tokens"])
    assert numpy.abs(chat - same).max() < 1e-5


def test_a_text_that_is_too_long_is_refused_or_cut(pod: Front) -> None:
    long = "a b c d e f g h i j " * 20
    status, answer = post(pod, "/v1/embeddings", {"model": "tiny", "input": long})
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    ids = byte_tokenizer().encode(long).ids
    for body, kept in (
        ({"truncate_prompt_tokens": 10}, ids[:10]),
        ({"truncate_prompt_tokens": 10, "truncation_side": "left"}, ids[-10:]),
        ({"truncate_prompt_tokens": -1}, ids[:127]),
    ):
        status, answer = post(pod, "/v1/embeddings", {"model": "tiny", "input": long} | body)
        assert (status, answer["usage"]["prompt_tokens"]) == (200, len(kept))
        (whole,) = vectors(pod, input=kept)
        assert numpy.abs(numpy.array(answer["data"][0]["embedding"]) - whole).max() < 1e-5
        assert numpy.abs(vectors(pod, input=ids, **body)[0] - whole).max() < 1e-5


def test_dimensions_are_those_that_the_model_says_it_has(pod: Front) -> None:
    (whole,) = vectors(pod, input="hello")
    (short,) = vectors(pod, input="hello", dimensions=16)
    assert numpy.abs(short - whole[:16] / numpy.linalg.norm(whole[:16])).max() < 1e-6
    assert vectors(pod, input="hello", dimensions=48).shape == (1, 48)
    (raw,) = vectors(pod, input="hello", use_activation=False)
    assert abs(numpy.linalg.norm(raw) - 1) > 0.1
    assert numpy.abs(raw / numpy.linalg.norm(raw) - whole).max() < 1e-6


@pytest.mark.parametrize(
    ("path", "body", "param", "words"),
    [
        ("embeddings", {"input": "a", "dimensions": 20}, "dimensions", "It has 8, 16, 48"),
        ("embeddings", {"input": "a", "dimensions": 64}, "dimensions", "vectors have 48"),
        ("embeddings", {"input": "a", "dimensions": 0}, "dimensions", "greater than or equal to 1"),
        ("embeddings", {"input": []}, "input", ""),
        ("embeddings", {"input": ""}, "input", "at least one token"),
        ("embeddings", {"input": ["a", ""]}, "input", "at least one token"),
        ("embeddings", {}, "input", "send either input or messages"),
        ("embeddings", {"input": "a", "messages": [{"role": "user", "content": "a"}]}, "input", "either"),
        ("embeddings", {"input": [-1]}, "input", "out of vocabulary"),
        ("embeddings", {"input": [[5], [999]]}, "input", "out of vocabulary"),
        ("embeddings", {"input": ["a"] * 2049}, "input", "2048"),
        ("embeddings", {"input": "a", "encoding_format": "hex"}, "encoding_format", "float"),
        ("embeddings", {"input": "a", "truncate_prompt_tokens": 8193}, "truncate_prompt_tokens", "127"),
        ("embeddings", {"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "1 or more"),
        ("embeddings", {"input": "a", "padding": "max_length"}, "padding", "not built"),
        ("embeddings", {"input": "a", "embed_dtype": "float16"}, "embed_dtype", "not built"),
        ("embeddings", {"input": "\ud800"}, "input", "half a surrogate"),
        ("score", {"queries": "a"}, "queries", "send text_1 and text_2"),
        ("score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "text_1", "send one or as many"),
        ("score", {"text_1": "", "text_2": "a"}, "text_1", "at least one token"),
        ("score", {"text_1": "a", "text_2": ["a"] * 2049}, "text_2", "one request takes 2048"),
        ("rerank", {"query": "a", "documents": []}, "documents", ""),
        ("rerank", {"query": "a", "documents": ["b"], "top_n": -1}, "top_n", "greater than or equal to 0"),
    ],
)
def test_what_is_wrong_is_a_400_that_names_the_field(
    pod: Front, path: str, body: dict[str, object], param: str, words: str
) -> None:
    status, answer = post(pod, f"/v1/{path}", {"model": "tiny"} | body)
    assert status == 400, answer
    assert (answer["error"]["param"] or "").startswith(param)
    assert words in answer["error"]["message"]


def test_another_model_is_not_here(pod: Front) -> None:
    with pytest.raises(openai.NotFoundError):
        pod.client().embeddings.create(model="other", input="a")


def test_scores_are_cosines_of_the_texts(pod: Front, llama: tuple[Path, LlamaForCausalLM]) -> None:
    own = [expected(llama[1], text) for text in TEXTS]
    for one, many in (("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2")):
        status, answer = post(pod, "/v1/score", {"model": "tiny", one: TEXTS[0], many: TEXTS})
        assert status == 200, answer
        assert [row["index"] for row in answer["data"]] == [0, 1, 2, 3]
        assert [row["score"] for row in answer["data"]] == pytest.approx([float(own[0] @ row) for row in own], abs=1e-5)
        assert (answer["object"], answer["data"][0]["object"]) == ("list", "score")
    status, pairs = post(pod, "/v1/score", {"model": "tiny", "text_1": TEXTS, "text_2": TEXTS})
    assert [row["score"] for row in pairs["data"]] == pytest.approx([1.0] * 4)
    assert all(row["score"] <= 1 for row in pairs["data"])


def test_documents_come_in_the_order_of_their_scores(pod: Front) -> None:
    status, answer = post(pod, "/v1/rerank", {"model": "tiny", "query": TEXTS[0], "documents": TEXTS, "top_n": 2})
    assert status == 200
    first, second = answer["results"]
    assert (first["index"], first["document"]["text"]) == (0, TEXTS[0])
    assert first["relevance_score"] == pytest.approx(1.0)
    assert first["relevance_score"] >= second["relevance_score"]


@pytest.mark.parametrize("path", ["/rerank", "/v2/rerank", "/rerank/"])
def test_rankings_have_the_paths_and_forms_of_others(pod: Front, path: str) -> None:
    body = {"model": "tiny", "query": TEXTS[0], "documents": TEXTS}
    _, expected = post(pod, "/v1/rerank", body)
    objects = body | {"documents": [{"text": text} for text in TEXTS], "return_documents": False}
    status, answer = post(pod, path, objects)
    assert status == 200
    # Texts may be of other passes than before, whose numbers differ in their last bits.
    assert [row["index"] for row in answer["results"]] == [row["index"] for row in expected["results"]]
    for row, other in zip(answer["results"], expected["results"], strict=True):
        assert row == {name: pytest.approx(other[name], abs=1e-5) for name in ("index", "relevance_score")}
    for wrong in ([{"text": 5}], [{"text": "a", "title": "b"}], [{}], [[]]):
        assert post(pod, path, body | {"documents": wrong})[0] == 400


def test_scores_have_vllms_path_too(pod: Front) -> None:
    body = {"model": "tiny", "text_1": "a", "text_2": ["a", "b"]}
    assert post(pod, "/score", body)[1]["data"] == post(pod, "/v1/score", body)[1]["data"]


def test_requests_are_counted_by_what_asked_for_them(pod: Front) -> None:
    def counted(kind: str) -> float:
        return pod.metric("graphpod_pooled_prompts_total", kind=kind)

    before = {kind: counted(kind) for kind in ("embedding", "score", "rerank")}
    vectors(pod, input=["a", "b", "c"])
    post(pod, "/v1/score", {"model": "tiny", "text_1": "a", "text_2": ["a", "b"]})
    post(pod, "/v1/rerank", {"model": "tiny", "query": "a", "documents": ["a", "b"]})
    assert {kind: counted(kind) - before[kind] for kind in before} == {"embedding": 3, "score": 2, "rerank": 3}


@pytest.mark.parametrize(
    ("files", "pooling", "refused"),
    [
        ({}, Pooling.Last, ""),
        (
            {"1_Pooling/config.json": {"pooling_mode_lasttoken": True, "pooling_mode_cls_token": False}},
            Pooling.Last,
            "",
        ),
        ({"1_Pooling/config.json": {"pooling_mode_mean_tokens": True}}, Pooling.Mean, ""),
        ({"1_Pooling/config.json": {"pooling_mode": "mean"}}, Pooling.Mean, ""),
        ({"1_Pooling/config.json": {"pooling_mode_cls_token": True}}, Pooling.Last, "cls_token is not built"),
        (
            {"1_Pooling/config.json": {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}},
            Pooling.Last,
            "mean_tokens and max_tokens",
        ),
        ({"1_Pooling/config.json": [1]}, Pooling.Last, "holds no JSON object"),
        ({"modules.json": [{"type": "sentence_transformers.models.Dense"}]}, Pooling.Last, "'Dense' is not built"),
        ({"modules.json": [{"type": "sentence_transformers.models.Normalize"}, 5]}, Pooling.Last, ""),
        ({"modules.json": {"a": 1}}, Pooling.Last, "holds no JSON list"),
    ],
)
def test_a_folder_says_how_its_embeddings_are_made(
    tmp_path: Path, files: dict[str, object], pooling: Pooling, refused: str
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content))
    pooler = Pooler.read(tmp_path)
    assert pooler.pooling is pooling
    assert (refused in pooler.refused) if refused else not pooler.refused


def test_a_cut_keeps_the_tokens_around_a_text(llama: tuple[Path, LlamaForCausalLM], tmp_path: Path) -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = byte_tokenizer()
    tokenizer.post_processor = TemplateProcessing(single="<|end|> $A <|end|>", special_tokens=[("<|end|>", 256)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    own = Tokenizer(tmp_path)
    plain = own.encode("abcdef", specials=False)
    assert Cut(5, left=False).text(own, "abcdef", 100, specials=True) == [256, *plain[:3], 256]
    assert Cut(5, left=True).text(own, "abcdef", 100, specials=True) == [256, *plain[-3:], 256]
    assert Cut(5, left=False).text(own, "abcdef", 100, specials=False) == plain[:5]
    assert Cut(100, left=False).text(own, "abcdef", 100, specials=True) == own.encode("abcdef")
    assert len(Cut(1, left=False).text(own, "abcdef", 100, specials=True)) == 1
    assert len(Cut(5, left=False).text(own, "a" * 10_000_000, 100, specials=True)) == 5


def test_vectors_of_any_length_are_scaled_to_one() -> None:
    huge = numpy.array([3e38, 3e38], dtype="<f4").tobytes()
    assert scaled(huge, None, unit=True).tolist() == pytest.approx([2**-0.5] * 2)
    nothing = numpy.zeros(3, dtype="<f4").tobytes()
    assert scaled(nothing, None, unit=True).tolist() == [0, 0, 0]
    assert cosines([huge, nothing], [huge, huge[:0] + nothing]) == pytest.approx([1.0, 0.0])


def test_the_code_of_the_page_runs(pod: Front) -> None:
    blocks, said, names = run_blocks(PAGE, pod, "tiny")
    assert blocks == 2
    assert said.startswith("48 ")
    assert names["cosine"](names["one"], names["one"]) == pytest.approx(1, abs=1e-5)
