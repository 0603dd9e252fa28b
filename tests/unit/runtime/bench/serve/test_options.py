"""The words of a load, and rows made of them."""

from pathlib import Path

import pytest

from graphpod_runtime.bench.serve.load.arrivals import Arrivals, Closed, Open
from graphpod_runtime.bench.serve.load.length import Length
from graphpod_runtime.bench.serve.load.load import Api
from graphpod_runtime.bench.serve.load.prompts import Form
from graphpod_runtime.bench.serve.options import WordsInvalid, loads_of, read_words, wants_ids
from graphpod_runtime.bench.serve.suites import SUITES, SuiteInvalid, rows_of, suite


def test_words_become_a_load() -> None:
    words = (
        "--rate 3 --burstiness 0.5 --requests 9 --input lognormal:300:0.7:10-900 --output 5-6 --prefix 8 "
        "--prefix-groups 2 --cancel 0.1 --temperature 0.8 --top-p 0.9 --stop-at-eos "
        "--json-schema"
    )
    (load,) = loads_of(read_words(words), 0, "s", ids=True, vocab=100)
    assert load.loop == Open(3.0, Arrivals.Gamma, 0.5)
    assert (load.conversations, load.prefix, load.groups, load.cancel) == (9, 8, 2, 0.1)
    assert (load.input, load.output) == (Length(10, 900, 300, 0.7), Length(5, 6))
    assert load.sampling == {"temperature": 0.8, "top_p": 0.9}
    assert (load.ignore_eos, load.json_schema) == (False, True)
    assert (load.api, load.form, load.vocab) == (Api.Completions, Form.Ids, 100)


def test_a_load_that_accompanies_another_has_no_end_and_prompts_of_its_own() -> None:
    given = read_words("--concurrency 4 --also '--rate 0.5 --arrivals constant --input 8192 --output 1'")
    first, second = loads_of(given, 0, "s", ids=True, vocab=100)
    assert (first.loop, first.conversations) == (Closed(4), 100)
    assert (second.loop, second.conversations) == (Open(0.5, Arrivals.Constant), None)
    assert first.seed != second.seed


@pytest.mark.parametrize(
    ("words", "ids", "expected", "wanted"),
    [
        ("", True, (Api.Completions, Form.Ids), True),
        ("", False, (Api.Completions, Form.Text), True),
        ("--prompts text", True, (Api.Completions, Form.Text), False),
        ("--api chat", True, (Api.Chat, Form.Text), False),
        ("--turns 2", True, (Api.Chat, Form.Text), False),
        ("--turns 2 --api completions --prompts text", True, (Api.Completions, Form.Text), False),
    ],
)
def test_prompts_are_ids_where_the_server_takes_them_and_a_conversation_is_a_chat(
    words: str, ids: bool, expected: tuple[Api, Form], wanted: bool
) -> None:
    given = read_words(words)
    (load,) = loads_of(given, 0, "s", ids=ids, vocab=100)
    assert (load.api, load.form) == expected
    assert wants_ids(given) is wanted


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--concurrency 2 --rate 3", "not allowed with"),
        ("--arrivals constant", "go with --rate"),
        ("--rate 1 --arrivals poisson --burstiness 2", "goes with --arrivals gamma"),
        ("--turns 2 --prompts ids", "--turns needs text"),
        ("--api chat --prompts ids", "chat takes text"),
        ("--input 5-2", "smaller number first"),
        ("--slo ttft=5", "no limit"),
        ("--cancel 1.5", "0.0 to 1.0"),
        ("--also '--also --concurrency'", "--also"),
        ("--json x", "--json"),
    ],
)
def test_words_that_make_no_load_are_refused_by_name(words: str, message: str) -> None:
    with pytest.raises(WordsInvalid, match=message):
        read_words(words)


@pytest.mark.parametrize("name", SUITES)
def test_every_row_of_a_named_suite_can_be_read(name: str) -> None:
    rows = suite(name)
    assert len({row.name for row in rows}) == len(rows) > 1
    for row in rows:
        assert loads_of(read_words(row.words), 0, "s", ids=True, vocab=100)


def test_prompts_of_8k_arrive_while_others_decode() -> None:
    (row,) = [row for row in suite("h200-8b") if row.name == "long-prompts"]
    decoding, prompts = loads_of(read_words(row.words), 0, "s", ids=True, vocab=100)
    assert (decoding.loop, decoding.output) == (Closed(16), Length(2048, 2048))
    assert (prompts.loop, prompts.input) == (Open(0.5, Arrivals.Constant), Length(8192, 8192))


def test_a_file_of_rows_may_have_comments_and_a_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_text("# mine\n\na  --concurrency 2 --also '--rate 1'\nb\n")
    assert suite(str(path)) == [("a", "--concurrency 2 --also '--rate 1'"), ("b", "")]
    with pytest.raises(SuiteInvalid, match=r"x, line 2: .*--widht"):
        rows_of("a --concurrency 2\nb --widht 3", "x")
    with pytest.raises(SuiteInvalid, match="line 2: the name 'a' is taken"):
        rows_of("a\na", "x")
    with pytest.raises(SuiteInvalid, match="x has no rows"):
        rows_of("# nothing", "x")
    with pytest.raises(SuiteInvalid, match=r"neither a suite \(h200"):
        suite(str(tmp_path / "absent"))
