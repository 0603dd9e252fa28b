"""What is asked: lengths, arrivals, requests. All of it follows from the seed."""

from collections import Counter
from itertools import islice, pairwise
from random import Random

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpod_runtime.bench.serve.load.arrivals import Arrivals, Closed, Open, driver_of, schedule
from graphpod_runtime.bench.serve.load.length import Length, length_of
from graphpod_runtime.bench.serve.load.load import Api, Load
from graphpod_runtime.bench.serve.load.prompts import RESERVED, Form
from graphpod_runtime.bench.serve.load.requests import body, conversation

BOUNDS = st.tuples(st.integers(1, 5000), st.integers(0, 5000)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@st.composite
def lengths(draw: st.DrawFn) -> Length:
    least, most = draw(BOUNDS)
    if draw(st.booleans()):
        return Length(least, most)
    return Length(least, most, draw(st.integers(least, most)), draw(st.sampled_from([0.0, 0.5, 1.5])))


@given(lengths(), st.integers())
def test_a_length_is_within_its_range_and_reads_as_it_is_written(length: Length, seed: int) -> None:
    assert length.least <= length.draw(Random(seed)) <= length.most
    assert length_of(str(length)) == length


def test_a_lognormal_mix_has_its_median_and_a_long_tail() -> None:
    length = length_of("lognormal:300:0.8:1-100000")
    drawn = sorted(length.draw(Random(seed)) for seed in range(2000))
    assert 270 < drawn[1000] < 330
    assert sum(drawn) / len(drawn) > 1.2 * drawn[1000]


@pytest.mark.parametrize("word", ["", "0", "7-3", "-4", "1.5", "lognormal:9:1:10-20", "lognormal:9:1"])
def test_what_is_no_length_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match=r"length|median"):
        length_of(word)


LOOPS = st.builds(
    Open,
    rate=st.floats(0.1, 1000),
    arrivals=st.sampled_from(Arrivals),
    burstiness=st.floats(0.1, 10),
)


@given(LOOPS, st.text(max_size=3))
def test_a_schedule_begins_at_once_ascends_and_follows_from_the_seed(loop: Open, seed: str) -> None:
    first = list(islice(schedule(loop, seed), 50))
    assert first[0] == 0
    assert first == sorted(first)
    assert first == list(islice(schedule(loop, seed), 50))


@pytest.mark.parametrize(
    ("loop", "variation"),
    [
        (Open(20, Arrivals.Constant), 0.0),
        (Open(20, Arrivals.Poisson), 1.0),
        (Open(20, Arrivals.Gamma, 1.0), 1.0),
        (Open(20, Arrivals.Gamma, 0.25), 2.0),
        (Open(20, Arrivals.Gamma, 4.0), 0.5),
    ],
)
def test_gaps_have_the_mean_of_the_rate_and_vary_with_the_burstiness(loop: Open, variation: float) -> None:
    times = list(islice(schedule(loop, "7"), 20_001))
    gaps = [later - earlier for earlier, later in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(1 / 20, rel=0.05)
    assert deviation / mean == pytest.approx(variation, rel=0.07, abs=1e-6)


@given(st.integers(1, 200), st.integers(1, 16))
def test_the_width_of_a_closed_loop_is_shared_out_whole_and_evenly(width: int, processes: int) -> None:
    shares = [Closed(width).share(number, processes) for number in range(processes)]
    assert sum(shares) == width
    assert max(shares) - min(shares) <= 1


@given(st.integers(1, 50), st.integers(1, 8), st.integers(1, 5))
def test_each_driver_has_conversations_for_its_share_of_the_width(width: int, processes: int, rounds: int) -> None:
    loop = Closed(width)
    counts = Counter(driver_of(loop, number, processes) for number in range(rounds * width))
    assert [counts[number] for number in range(processes)] == [
        rounds * loop.share(number, processes) for number in range(processes)
    ]


@given(st.integers(1, 8), st.integers(0, 100))
def test_an_open_loop_is_dealt_out_in_turn(processes: int, number: int) -> None:
    loop = Open(1.0)
    assert driver_of(loop, number + processes, processes) == driver_of(loop, number, processes) < processes
    assert len({driver_of(loop, number + more, processes) for more in range(processes)}) == processes


LOADS = st.builds(
    Load,
    loop=st.just(Closed(4)),
    conversations=st.just(10),
    input=lengths().filter(lambda length: length.most < 500),
    output=lengths(),
    prefix=st.integers(0, 40),
    groups=st.integers(1, 3),
    cancel=st.sampled_from([0.0, 0.5, 1.0]),
    cancel_after=lengths(),
    form=st.sampled_from(Form),
    vocab=st.integers(2, 50_000),
    seed=st.sampled_from(["1", "2"]),
)


@given(LOADS, st.integers(0, 50))
def test_a_request_is_a_function_of_the_load_and_its_number(load: Load, number: int) -> None:
    talk = conversation(load, number)
    assert talk == conversation(load, number)
    (turn,) = talk.turns
    new = turn.new.split() if isinstance(turn.new, str) else turn.new
    assert load.input.least <= len(new) <= load.input.most
    assert load.output.least <= turn.output <= load.output.most
    assert (turn.cancel_after is None) if load.cancel == 0 else (turn.cancel_after is not None or load.cancel < 1)
    if isinstance(turn.new, list):
        assert all(min(RESERVED, load.vocab // 2) <= id < load.vocab for id in [*talk.prefix, *turn.new])


@given(st.integers(1, 4), st.integers(0, 20), st.sampled_from(Form))
def test_conversations_of_a_group_share_their_prefix_and_no_others_do(groups: int, number: int, form: Form) -> None:
    load = Load(
        loop=Closed(1),
        conversations=1,
        input=length_of("4"),
        output=length_of("1"),
        prefix=20,
        groups=groups,
        form=form,
    )
    mine = conversation(load, number).prefix
    assert mine == conversation(load, number + groups).prefix
    for other in range(1, groups):
        assert mine != conversation(load, number + other).prefix


def test_the_share_of_cancelled_requests_is_as_asked() -> None:
    load = Load(loop=Closed(1), conversations=1000, input=length_of("1"), output=length_of("9"), cancel=0.2)
    left = sum(conversation(load, number).turns[0].cancel_after is not None for number in range(1000))
    assert 160 < left < 240


def test_no_two_requests_and_no_two_seeds_have_one_prompt() -> None:
    def prompts(seed: str) -> list[str]:
        load = Load(loop=Closed(1), conversations=None, input=length_of("20"), output=length_of("1"), seed=seed)
        return [str(conversation(load, number).turns[0].new) for number in range(50)]

    assert len({*prompts("1"), *prompts("2")}) == 100


def test_a_later_turn_of_a_chat_carries_all_that_was_said() -> None:
    load = Load(
        loop=Closed(1), conversations=1, input=length_of("3"), output=length_of("4-9"), turns=3,
        next_input=length_of("2"), prefix=2, api=Api.Chat, form=Form.Text, sampling={"temperature": 0.5},
    )  # fmt: skip
    talk = conversation(load, 0)
    third = body(load, "m", talk, ["one", "two"])
    assert [turn["role"] for turn in third["messages"]] == ["system", "user", "assistant", "user", "assistant", "user"]
    said = [turn["content"] for turn in third["messages"]]
    assert said == [talk.prefix, talk.turns[0].new, "one", talk.turns[1].new, "two", talk.turns[2].new]
    assert [len(str(said[at]).split()) for at in (0, 1, 3, 5)] == [2, 3, 2, 2]
    assert third["max_tokens"] == talk.turns[2].output
    assert (third["temperature"], third["ignore_eos"], third["stream"]) == (0.5, True, True)


def test_a_prompt_of_ids_begins_with_the_shared_prefix_and_one_of_text_too() -> None:
    load = Load(loop=Closed(1), conversations=1, input=length_of("3"), output=length_of("1"), prefix=2)
    talk = conversation(load, 0)
    assert body(load, "m", talk, [])["prompt"] == [*talk.prefix, *talk.turns[0].new]
    text = Load(
        loop=Closed(1), conversations=1, input=length_of("3"), output=length_of("1"), prefix=2, turns=2, form=Form.Text
    )
    talk = conversation(text, 0)
    first = body(text, "m", talk, [])["prompt"]
    assert first == f"{talk.prefix} {talk.turns[0].new}"
    assert body(text, "m", talk, [" an answer"])["prompt"] == f"{first} an answer {talk.turns[1].new}"


def test_eos_ends_an_answer_only_if_it_may() -> None:
    load = Load(loop=Closed(1), conversations=1, input=length_of("3"), output=length_of("1"), ignore_eos=False)
    assert "ignore_eos" not in body(load, "m", conversation(load, 0), [])


@pytest.mark.parametrize("api", Api)
def test_answers_by_a_schema_are_requested_as_openai_has_it(api: Api) -> None:
    load = Load(loop=Closed(1), conversations=1, input=length_of("3"), output=length_of("1"), form=Form.Text, api=api)
    assert "response_format" not in body(load, "m", conversation(load, 0), [])
    asked = body(msgspec.structs.replace(load, json_schema=True), "m", conversation(load, 0), [])["response_format"]
    assert asked["type"] == "json_schema"
    jsonschema.validate([{"name": "a", "count": 1, "state": "done"}] * 1000, asked["json_schema"]["schema"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate([], asked["json_schema"]["schema"])
