"""`graphpod-fetch`: a model from where it is published into a folder of a cache."""

import argparse
import os
import re
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from graphpod_policy import __version__
from graphpod_sources import credentials
from graphpod_sources.credentials import Credentials
from graphpod_sources.fetch import Request, fetch
from graphpod_sources.names import size
from graphpod_sources.problem import ROWS, Exit, Problem, Reason
from graphpod_sources.progress import Progress
from graphpod_sources.report import termination
from graphpod_sources.report.disk_rate import WORTH, disk_rate
from graphpod_sources.report.server import Server
from graphpod_sources.stores.allowed_hosts import EVERYTHING, AllowedHosts
from graphpod_sources.stores.choice import check_authorities, source_of
from graphpod_sources.uri import FORMS, parse

LINES = 5.0
"""Seconds between two lines of the log."""
TERMINATED = 143
"""Exit code after SIGTERM: the Job starts another pod, which goes on where this one ended."""

DESCRIPTION = f"""Download a model into ROOT/NAME. A second call goes on where the first one ended, however it ended.

URI is one of
{chr(10).join(f"  {form}" for form in FORMS)}
"""
EPILOG = f"""\
Weights are taken as safetensors, with configuration, tokenizer and templates. Pickled weights and Python code are
never downloaded. A single GGUF file is converted.

Credentials are files of --credentials, or environment variables of the same names:
  hf://     token or HF_TOKEN; the endpoint is HF_ENDPOINT
  s3://     AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; AWS_ENDPOINT_URL, AWS_REGION
  gs://     GOOGLE_SERVICE_ACCOUNT (the JSON document); GOOGLE_BASE_URL
  az://     AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN; AZURE_STORAGE_ENDPOINT
  https://  token, sent as a bearer token to that host only
  oci://    .dockerconfigjson; registries without TLS in OCI_PLAIN_HTTP
Files of --credentials go to the service's own hosts and to those that the file hosts lists, token to the latter only.

Exit codes:
   0  complete
  {Exit.TryAgain}  another try may succeed: {", ".join(r for r in Reason if ROWS[r].retry)}
  {Exit.Failed}  it cannot: NotFound, Unauthorized, DiskFull and all other reasons

Example: graphpod-fetch hf://HuggingFaceTB/SmolLM2-135M --root /models --folder smollm2-135m
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch what the command line names; returns the exit code."""
    options = _parser().parse_args(arguments)
    progress = Progress()
    log = _Log(progress, options.termination_log)
    signal.signal(signal.SIGTERM, log.terminated)
    try:
        server = Server(progress, options.port)
    except OSError as error:
        print(
            f"graphpod-fetch: port {options.port} cannot be used: {error.strerror}; use another --port", file=sys.stderr
        )
        return Exit.Failed
    server.start()
    log.start(f"progress at port {server.port}, /progress")
    began = monotonic()
    try:
        uri = parse(options.uri)
        known = Credentials.read(options.credentials, os.environ)
        check_authorities(known, options.root)
        allowed = AllowedHosts(EVERYTHING if options.allowed_hosts is None else tuple(options.allowed_hosts))
        source = source_of(uri, known, options.sha256, options.stall_seconds, allowed)
        request = Request(
            uri,
            options.root,
            options.folder,
            options.include,
            options.stall_seconds,
            options.size,
            frozenset(options.keep),
        )
        whole = fetch(request, source, progress, log.say)
    except Problem as problem:
        progress.fail(problem)
        log.end()
        return problem.exit
    seconds = monotonic() - began
    came = progress.received
    log.say(f"{request.folder}: {len(whole.files)} files, {size(whole.bytes)}, commit {whole.commit}")
    log.say(f"{size(came)} downloaded in {seconds:.1f} s: {size(came / seconds)}/s{_disk(request.root, came)}")
    log.end()
    return Exit.Complete


def _disk(root: Path, came: int) -> str:
    """What the disk takes, after a download that was long enough to tell."""
    if came < WORTH:
        return ""
    try:
        return f"; the disk takes {size(disk_rate(root))}/s"
    except OSError as error:  # a disk that is full now: the model is complete
        return f"; the disk takes no probe ({error.strerror})"


def run() -> None:
    """The program. A thread that hangs in a library must not keep the process from ending."""
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class _Log:
    """Lines on standard output, and the termination message."""

    def __init__(self, progress: Progress, path: Path) -> None:
        self._progress, self._path, self._stop = progress, path, threading.Event()

    def start(self, first: str) -> None:
        self.say(first)
        threading.Thread(target=self._lines, name="log", daemon=True).start()

    def _lines(self) -> None:
        while not self._stop.wait(LINES):
            self.say(self._progress.snapshot().line())

    def say(self, line: str) -> None:
        print(line, flush=True)

    def end(self) -> None:
        self._stop.set()
        self.say(self._progress.snapshot().line())
        termination.write(self._progress.snapshot(), self._path)

    def terminated(self, *_: object) -> None:
        """A pod that is deleted: process 1 gets no default of a signal."""
        termination.write(self._progress.snapshot(), self._path)
        os._exit(TERMINATED)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="graphpod-fetch",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("uri", metavar="URI", help="where the model is")
    parser.add_argument("--root", type=_folder, required=True, metavar="DIR", help="the cache, an existing folder")
    parser.add_argument("--folder", type=_name, required=True, metavar="NAME", help="the model's folder in the cache")
    parser.add_argument("--sha256", type=_sha256, metavar="HEX", help="checksum of an https:// file, required there")
    parser.add_argument(
        "--include",
        nargs="+",
        action="extend",
        default=[],
        metavar="GLOB",
        help="files to take instead of the default ones; pickled weights and code never",
    )
    parser.add_argument("--port", type=_port, default=8081, help="of /progress and /livez; default: %(default)s")
    parser.add_argument(
        "--stall-seconds",
        type=_seconds,
        default=120.0,
        metavar="S",
        help="give up when nothing moved for so long; default: %(default)g",
    )
    parser.add_argument(
        "--size",
        type=_bytes,
        metavar="BYTES",
        help="what the cache may hold: least recently used folders are removed before the download",
    )
    parser.add_argument(
        "--keep",
        nargs="+",
        action="extend",
        default=[],
        type=_name,
        metavar="NAME",
        help="folders that are in use and never removed",
    )
    parser.add_argument(
        "--allowed-hosts",
        nargs="*",
        action="extend",
        metavar="HOST",
        help="hosts to connect to, HOST or HOST:PORT, redirects included; * stands for any text; default: all",
    )
    parser.add_argument(
        "--credentials", type=Path, default=credentials.FOLDER, metavar="DIR", help="default: %(default)s"
    )
    parser.add_argument(
        "--termination-log", type=Path, default=termination.PATH, metavar="FILE", help="default: %(default)s"
    )
    return parser


def _folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is no folder; create it, or mount the claim there")
    return Path(text).resolve()


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a folder: letters, digits, '.', '_' and '-'")
    return text


def _sha256(text: str) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise argparse.ArgumentTypeError("64 hexadecimal digits are wanted, as sha256sum prints them")
    return text.lower()


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; 0 takes any free one")
    return int(text)


def _seconds(text: str) -> float:
    try:
        if 0 < float(text) <= 86400:
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0 and at most 86400")


def _bytes(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes")
    return int(text)


if __name__ == "__main__":
    run()
