"""`python -m benchmarks.front_streams.first_token`: one streamed request at a time, on an idle server whose engine
answers at once. So all of the time to its first token is the front's and the wire's.

Fronts of two commits run side by side and are asked in turn, so the ratio of their medians is what counts. Then each
is asked again with marks, for a table of stages: marks cost some microseconds each.
"""

import argparse
import contextlib
import json
import os
import shlex
import socket
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.front_streams import model
from benchmarks.front_streams.fronts import ROOT, checked_out, running
from benchmarks.front_streams.marks import STAGES, stages_of

BEFORE = "9331b39a"
"""The last commit before the way to the first token was shortened."""
WARM = 50
PAUSE_SECONDS = 0.003
"""Before each request: the front that was asked before has tidied up."""
DONE = b"data: [DONE]"


class Client:
    """One kept-alive connection."""

    def __init__(self, url: str, tokens: int, *, text: bool) -> None:
        address = urlsplit(url)
        prompt = " word7" * tokens if text else [(7 * token) % model.WORDS for token in range(tokens)]
        body = json.dumps(
            {"model": model.NAME, "prompt": prompt, "max_tokens": 1, "stream": True, "temperature": 0,
             "ignore_eos": True}
        ).encode()  # fmt: skip
        head = f"POST /v1/completions HTTP/1.1\r\nhost: {address.netloc}\r\ncontent-type: application/json\r\n"
        self._request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
        self._socket = socket.create_connection((address.hostname, address.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def first_token(self) -> tuple[int, int]:
        """Asks once; time.perf_counter_ns() of the request and of the first event."""
        time.sleep(PAUSE_SECONDS)
        began, came, seen = time.perf_counter_ns(), 0, b""
        self._socket.sendall(self._request)
        while not seen.endswith(b"0\r\n\r\n"):
            data = self._socket.recv(1 << 16)
            if not came and b"data: " in data:
                came = time.perf_counter_ns()
            seen += data
            if not data or b"HTTP/1.1 200" not in seen:
                raise RuntimeError(f"no stream came: {seen[:400].decode(errors='replace')}")
        if DONE not in seen:
            raise RuntimeError(f"the stream ended early: {seen[-400:].decode(errors='replace')}")
        return began, came


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="benchmarks.front_streams.first_token", description=__doc__.split("\n")[0])
    parser.add_argument("--prompt", type=int, nargs="+", default=[64, 512, 2048], help="tokens")
    parser.add_argument("--requests", type=int, default=500, help="of each kind")
    parser.add_argument("--text", action="store_true", help="prompts as text instead of token ids")
    parser.add_argument("--against", default=BEFORE, help="the commit to compare with")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="graphpod-front-") as scratch, contextlib.ExitStack() as until:
        folder = Path(scratch)
        trees = {"before": checked_out(options.against, folder / "tree"), "after": ROOT}
        config = model.write(folder)
        marked = {}
        for name, tree in trees.items():
            for marks in ("", str(folder / f"{name}.marks")):
                pid, url = until.enter_context(running(tree, config, 0, folder, f"{name}{bool(marks)}.log", marks))
                marked[name, bool(marks)] = pid, url, Path(marks)
        for tokens in options.prompt:
            rows.append(_row(marked, tokens, options.requests, text=options.text))
            _print(rows[-1])
    if options.json:
        what = {"requests": options.requests, "text": options.text, "against": options.against}
        what |= {"cpus": os.cpu_count(), "python": sys.version.split()[0]}
        what |= {"command": shlex.join(["python", "-m", "benchmarks.front_streams.first_token", *sys.argv[1:]])}
        what |= {"date": datetime.now(UTC).date().isoformat()}
        options.json.write_text(json.dumps(what | {"rows": rows}, indent=1) + "\n")
    return 0


def _row(fronts: dict[tuple[str, bool], tuple[int, str, Path]], tokens: int, requests: int, *, text: bool) -> dict:
    """Microseconds: medians of the whole and of the front's processor time a request, and of each stage."""
    row: dict = {"prompt": tokens}
    for with_marks in (False, True):
        names = [name for name, marks in fronts if marks is with_marks]
        clients = {name: Client(fronts[name, with_marks][1], tokens, text=text) for name in names}
        times = {name: [] for name in names}
        for client in clients.values():
            for _ in range(WARM):
                client.first_token()
        sizes = {name: fronts[name, True][2].stat().st_size for name in names} if with_marks else {}
        used = {name: _processor_ns(fronts[name, with_marks][0]) for name in names}
        for _ in range(requests):
            for name, client in clients.items():
                times[name].append(client.first_token())
        for name in names:
            if with_marks:
                row[name] |= {"stages": stages_of(fronts[name, True][2], sizes[name], times[name])}
            else:
                cpu = (_processor_ns(fronts[name, False][0]) - used[name]) / requests / 1000
                whole = sorted((came - began) / 1000 for began, came in times[name])
                row[name] = {"whole": round(statistics.median(whole), 1), "p10": round(whole[len(whole) // 10], 1)}
                row[name] |= {"front_cpu": round(cpu, 1)}
    return row


def _processor_ns(pid: int) -> int:
    """Nanoseconds that all threads of a process have run."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def _print(row: dict) -> None:
    before, after = row["before"], row["after"]
    print(f"prompt of {row['prompt']} tokens (µs)         before    after   before / after")
    for name in ("whole", "p10", "front_cpu"):
        print(f"  {name:30} {before[name]:8.1f} {after[name]:8.1f}   {before[name] / after[name]:.2f}")
    for name in STAGES:
        one, other = before["stages"][name], after["stages"][name]
        print(f"  {name:30} {one:8.1f} {other:8.1f}   {one / max(other, 0.1):.2f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
