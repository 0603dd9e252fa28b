"""`graphpod top --prometheus URL`: the same values from a Prometheus, by instant queries over rates.

What answers may be anything: the answers are bounded in size, number of series and time.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import aiohttp
import msgspec

from graphpod_operator.explain.input_error import InputError
from graphpod_operator.terminal.values.fields import printable
from graphpod_operator.terminal.values.load import Load, of_rates
from graphpod_operator.terminal.values.scrape import COUNTERS, GAUGES, KV, RUNNING, WAITING, Series

WINDOW = "2m"
"""Of rates: two scrapes of a Prometheus that scrapes once a minute."""
SECONDS = 10.0
ANSWER_BYTES = 8 << 20
SERIES = 20_000
"""Of one answer: a thousand services, each with the twenty buckets of its histogram."""
OF_SERVICE = "namespace, inferenceservice"


class _Result(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct):
    result: list[_Result]
    resultType: str = ""


class _Answer(msgspec.Struct):
    status: str
    data: _Data | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    """One expression, whose results have the service's labels and `label`, if that is set."""

    metric: str
    label: str
    expression: str


def queries(namespace: str | None) -> tuple[Query, ...]:
    """What is asked, for the services of one namespace or (None) of all."""
    where = "{namespace=" + json.dumps(namespace) + "}" if namespace is not None else ""
    counters = (
        Query(name, label, f"sum by ({OF_SERVICE}, {label}) (rate({name}{where}[{WINDOW}]))")
        for name, (label,) in COUNTERS.items()
    )
    totals = {RUNNING: "sum", WAITING: "sum", KV: "max"}
    gauges = (Query(name, "", f"{totals[name]} by ({OF_SERVICE}) ({name}{where})") for name in GAUGES)
    return (*counters, *gauges)


def loads(answers: Mapping[Query, bytes]) -> dict[tuple[str, str], Load]:
    """What each service (namespace, name) does. Raises InputError where an answer is none of Prometheus."""
    rates: dict[tuple[str, str], dict[Series, float]] = {}
    gauges: dict[tuple[str, str], dict[str, float]] = {}
    for query, answer in answers.items():
        for labels, value in _results(answer):
            key = labels.get("namespace", ""), labels.get("inferenceservice", "")
            if query.label:
                rates.setdefault(key, {})[query.metric, labels.get(query.label, "")] = value
            else:
                gauges.setdefault(key, {})[query.metric] = value
    return {
        key: of_rates(
            rates.get(key) or None,
            running=gauges.get(key, {}).get(RUNNING),
            waiting=gauges.get(key, {}).get(WAITING),
            kv=gauges.get(key, {}).get(KV),
        )
        for key in rates.keys() | gauges.keys()
    }


def _results(answer: bytes) -> Iterator[tuple[Mapping[str, str], float]]:
    try:
        found = msgspec.json.decode(answer, type=_Answer)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InputError(
            f"--prometheus: what answers is no Prometheus: {printable(answer[:80].decode(errors='replace'))}"
        ) from error
    if found.data is None or found.status != "success":
        raise InputError(f"--prometheus: the query failed: {printable(found.error)}")
    if len(found.data.result) > SERIES:
        raise InputError(f"--prometheus: an answer has more than {SERIES} series; use -n NAMESPACE")
    for one in found.data.result:
        value = _number(one.value[1])
        if value is not None:
            yield one.metric, value


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


async def ask(session: aiohttp.ClientSession, url: str, namespace: str | None) -> dict[tuple[str, str], Load]:
    """What the services of one namespace or (None) of all do, by (namespace, name). Raises InputError."""
    asked = queries(namespace)
    answers = await asyncio.gather(*(_ask(session, url, query.expression) for query in asked))
    return loads(dict(zip(asked, answers, strict=True)))


async def _ask(session: aiohttp.ClientSession, url: str, expression: str) -> bytes:
    where = f"--prometheus {without_password(url)}"
    address = f"{url.rstrip('/')}/api/v1/query"
    body = bytearray()
    try:
        async with session.get(
            address, params={"query": expression}, timeout=aiohttp.ClientTimeout(total=SECONDS)
        ) as response:
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > ANSWER_BYTES:
                    raise InputError(f"{where}: an answer has more than {ANSWER_BYTES >> 20} MiB; use -n NAMESPACE")
            if response.status not in (200, 400, 422, 503):
                raise InputError(f"{where}: /api/v1/query answered {response.status}; give the URL of a Prometheus")
    except TimeoutError as error:
        raise InputError(f"{where}: no answer within {SECONDS:g} s; check the URL, or leave the option out") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        cause = printable(str(error) or type(error).__name__)
        raise InputError(f"{where}: no answer: {cause}; check the URL, or leave the option out") from error
    return bytes(body)


def without_password(url: str) -> str:
    """A URL as it may be printed."""
    scheme, found, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return printable(f"{scheme}://{host.rpartition('@')[2]}{slash}{path}" if found else url)
