"""The words that describe a load. They are the same on the command line and in a file of rows."""

import argparse
import shlex
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from graphpod_runtime.base.arguments import number, one_of
from graphpod_runtime.bench.serve.figures.slo import Slo, slo_of
from graphpod_runtime.bench.serve.load.arrivals import Arrivals, Closed, Loop, Open
from graphpod_runtime.bench.serve.load.length import SPELLINGS, length_of
from graphpod_runtime.bench.serve.load.load import Api, Load
from graphpod_runtime.bench.serve.load.prompts import Form

T = TypeVar("T")

SAMPLING = ("temperature", "top_p", "top_k", "min_p")


class WordsInvalid(ValueError):
    """The words of a load that make no sense together, or none at all."""


class _Parser(argparse.ArgumentParser):
    """Raises instead of ending the process: rows come from files."""

    def error(self, message: str) -> NoReturn:
        raise WordsInvalid(message)


def _value(read: Callable[[str], T]) -> Callable[[str], T]:
    """For argparse's `type`: keeps the message of a ValueError."""

    def value(word: str) -> T:
        try:
            return read(word)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return value


def add_load_options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The words of a load."""
    loop = parser.add_argument_group("how requests arrive")
    rate = loop.add_mutually_exclusive_group()
    length = _value(length_of)
    what = parser.add_argument_group(f"what is asked (a length: {SPELLINGS})")
    sampling = parser.add_argument_group("how tokens are chosen (default: greedy)")
    share, whole = number(float, 0.0, 1.0), number(int, 1)
    return [
        rate.add_argument(
            "--concurrency", type=whole, metavar="N", help="a closed loop: N requests at a time; default: 8"
        ),
        rate.add_argument("--rate", type=number(float, 1e-3), metavar="R", help="an open loop: R requests a second"),
        loop.add_argument(
            "--arrivals", type=one_of(Arrivals), default=None, metavar="HOW", help=f"{', '.join(Arrivals)}; of --rate"
        ),
        loop.add_argument(
            "--burstiness",
            type=number(float, 1e-2),
            metavar="B",
            help="of gamma arrivals: 1 is Poisson, less is burstier",
        ),
        loop.add_argument(
            "--requests", type=whole, default=100, metavar="N", help="conversations, with --turns; default: %(default)s"
        ),
        loop.add_argument(
            "--also",
            action="append",
            default=[],
            metavar="WORDS",
            help="a second load at the same time, until the first has ended; repeatable",
        ),
        what.add_argument("--input", type=length, default=length_of("512"), metavar="LENGTH", help="default: 512"),
        what.add_argument("--output", type=length, default=length_of("128"), metavar="LENGTH", help="default: 128"),
        what.add_argument("--prefix", type=whole, default=0, metavar="TOKENS", help="shared, in front of the input"),
        what.add_argument(
            "--prefix-groups", type=whole, default=1, metavar="N", help="different prefixes; default: %(default)s"
        ),
        what.add_argument("--turns", type=whole, default=1, metavar="N", help="requests of a conversation (chat)"),
        what.add_argument(
            "--next-input", type=length, default=length_of("32"), metavar="LENGTH", help="of later turns; default: 32"
        ),
        what.add_argument("--cancel", type=share, default=0.0, metavar="SHARE", help="of requests whose client leaves"),
        what.add_argument(
            "--cancel-after", type=length, default=length_of("8"), metavar="LENGTH", help="pieces; default: 8"
        ),
        what.add_argument("--json-schema", action="store_true", help="answers are lists of objects, by a JSON schema"),
        what.add_argument("--stop-at-eos", action="store_true", help="else ignore_eos is sent: lengths are as asked"),
        what.add_argument("--api", type=one_of(Api), metavar="API", help=f"{' or '.join(Api)}; chat with --turns"),
        what.add_argument(
            "--prompts", type=one_of(Form), metavar="FORM", help="ids or text; default: ids where the server takes them"
        ),
        what.add_argument("--slo", type=_value(slo_of), metavar="LIMITS", help="of goodput: ttft=200ms,tpot=20ms"),
        sampling.add_argument("--temperature", type=number(float, 0.0), default=0.0, metavar="T"),
        sampling.add_argument("--top-p", type=number(float, 0.0, 1.0), metavar="P"),
        sampling.add_argument("--top-k", type=number(int, -1), metavar="K"),
        sampling.add_argument("--min-p", type=number(float, 0.0, 1.0), metavar="P"),
    ]  # fmt: skip


class Given(argparse.Namespace):
    """The words of one row, read."""

    slo: Slo | None
    also: list[str]
    prompts: Form | None


def read_words(words: str) -> Given:
    """The words of one row. WordsInvalid says which of them is wrong."""
    parser = _Parser(prog="load", add_help=False, allow_abbrev=False)
    add_load_options(parser)
    given = parser.parse_args(shlex.split(words), Given())
    check(given)
    for also in given.also:
        if read_words(also).also:
            raise WordsInvalid(f"--also {also!r} has an --also of its own; give both to the row")
    return given


def check(given: argparse.Namespace) -> None:
    """WordsInvalid for words that contradict each other."""
    if given.rate is None and (given.arrivals or given.burstiness):
        raise WordsInvalid("--arrivals and --burstiness go with --rate")
    if given.burstiness and given.arrivals not in (None, Arrivals.Gamma):
        raise WordsInvalid(f"--burstiness goes with --arrivals gamma, not {given.arrivals}")
    if given.turns > 1 and given.prompts is Form.Ids:
        raise WordsInvalid("--turns needs text: a server's answer has no token ids to go on with")
    if given.api is Api.Chat and given.prompts is Form.Ids:
        raise WordsInvalid("--api chat takes text; leave out --prompts ids")


def seed_of(seed: int, row: str, at: int = 0) -> str:
    """The seed of a row's load `at`: no two rows of a run share prompts, which a prefix cache would answer."""
    return f"{seed}:{row}:{at}"


def loads_of(given: Given, seed: int, row: str, ids: bool, vocab: int) -> list[Load]:
    """The load of a row, and those that run with it. `ids`: the server takes prompts of token ids, below `vocab`."""
    others = [read_words(words) for words in given.also]
    return [_load(one, seed_of(seed, row, at), ids, vocab, endless=at > 0) for at, one in enumerate([given, *others])]


def wants_ids(given: Given) -> bool:
    """Whether some load of the row uses token ids if the server takes them."""
    return any(
        one.prompts is not Form.Text and _api(one) is Api.Completions
        for one in [given, *(read_words(words) for words in given.also)]
    )


def _api(given: Given) -> Api:
    return given.api or (Api.Chat if given.turns > 1 and given.prompts is None else Api.Completions)


def _load(given: Given, seed: str, ids: bool, vocab: int, *, endless: bool) -> Load:
    api = _api(given)
    text = api is Api.Chat or given.turns > 1 or not ids
    return Load(
        loop=_loop(given),
        conversations=None if endless else given.requests,
        input=given.input,
        output=given.output,
        turns=given.turns,
        next_input=given.next_input,
        prefix=given.prefix,
        groups=given.prefix_groups,
        cancel=given.cancel,
        cancel_after=given.cancel_after,
        sampling={name: value for name in SAMPLING if (value := getattr(given, name)) is not None},
        json_schema=given.json_schema,
        ignore_eos=not given.stop_at_eos,
        api=api,
        form=Form.Text if text or given.prompts is Form.Text else Form.Ids,
        vocab=vocab,
        seed=seed,
    )


def _loop(given: Given) -> Loop:
    if given.rate is None:
        return Closed(given.concurrency or 8)
    arrivals = given.arrivals or (Arrivals.Gamma if given.burstiness else Arrivals.Poisson)
    return Open(given.rate, arrivals, given.burstiness or 1.0)


def words_of(actions: Sequence[argparse.Action], given: argparse.Namespace) -> str:
    """The words that `given` came from, defaults left out: a row's provenance."""
    words: list[str] = []
    for action in actions:
        value = getattr(given, action.dest)
        if value == action.default or value is None:
            continue
        option = action.option_strings[0]
        if value is True:
            words.append(option)
        else:
            for one in value if isinstance(value, list) else [value]:
                words += [option, str(one)]
    return shlex.join(words)
