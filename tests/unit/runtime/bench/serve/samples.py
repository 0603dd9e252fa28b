"""Made-up records, and a made-up report with everything in it."""

from typing import Any

from graphpod_runtime.bench.serve.figures.record import Outcome, Record
from graphpod_runtime.bench.serve.figures.report import FORMAT, Drivers, Machine, Part, Report, Row, Server
from graphpod_runtime.bench.serve.figures.slo import Slo
from graphpod_runtime.bench.serve.figures.summary import summary
from graphpod_runtime.bench.serve.load.prompts import Form


def record(**changes: Any) -> Record:
    """A completed request of one second."""
    settings: dict[str, Any] = {"number": 0, "turn": 0, "asked": 1, "sent": 0.0, "end": 1.0} | changes
    return Record(**{"due": settings["sent"]} | settings)


def records(count: int, slower: float = 1.0, failed: int = 0) -> list[Record]:
    """Requests that came every 50 ms and were answered with ten tokens each; the last of them failed."""
    found = []
    for at in range(count):
        sent, fails = at * 0.05, at >= count - failed
        stamps = [sent + slower * (0.02 + 0.001 * (at % 7) + 0.01 * piece) for piece in range(10)]
        end = {"outcome": Outcome.Failed, "error": "HTTP 503", "message": "the queue is full"} if fails else {}
        found.append(
            record(
                number=at,
                asked=10,
                sent=sent,
                stamps=[] if fails else stamps,
                last=stamps[-1],
                end=stamps[-1],
                input_tokens=100,
                output_tokens=0 if fails else 10,
                **end,
            )
        )
    return found


def row(
    name: str = "load", slower: float = 1.0, failed: int = 0, busiest: float = 0.2, lag: float = 1e-3, **changes: Any
) -> Row:
    """A closed loop of forty requests."""
    seen = summary(records(40, slower, failed), Slo(ttft=0.2, tpot=0.02))
    settings: dict[str, Any] = {
        "name": name,
        "words": "--concurrency 4 --requests 40 --output 10",
        "date": "2026-01-02T03:04:05+00:00",
        "drivers": Drivers(2, busiest, busiest, lag),
        "parts": (Part("--concurrency 4 --requests 40 --output 10", Form.Ids, f"0:{name}:0", seen),),
    }
    return Row(**settings | changes)


def report(*names: str, slower: float = 1.0, failed: int = 0, busiest: float = 0.2, lag: float = 1e-3) -> Report:
    """A report with a row for each name."""
    return Report(
        format=FORMAT,
        command="graphpod-engine bench serve --url http://somewhere:8000",
        date="2026-01-02T03:04:05+00:00",
        machine=Machine("Made-up CPU", 16, ("Made-up GPU, 1.2",), "Linux", {"graphpod": "0.1.0"}),
        server=Server("http://somewhere:8000/v1", "made-up-8b", "stub 1.2.3"),
        rows=tuple(row(name, slower, failed, busiest, lag) for name in names or ("load",)),
    )
