"""`graphpod-engine serve`: what rules a start out first, then sockets, everything else after.

Only the standard library and the policy's words are imported before both ports listen; the rest of the front (and
with it the HTTP server and the tokenizer) is imported when probes can already wait in the sockets' queues. What
settings and the model's config.json rule out takes no more than that: no port listens for an engine that cannot start.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from graphpod_policy.config import ConfigError, EngineConfig, config_hash
from graphpod_policy.exit_codes import ExitCode
from graphpod_policy.start.flags import in_own_words
from graphpod_runtime.base.errors import SourceFailed
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.known_model import require_start
from graphpod_runtime.base.leader import leader_of
from graphpod_runtime.base.process.signals import asks_to_end
from graphpod_runtime.front.access.api_key import ApiKey, ApiKeyInvalid
from graphpod_runtime.front.access.tls import Certificate, TlsInvalid
from graphpod_runtime.front.options import Checked, ServeOptions
from graphpod_runtime.front.requests.termination import Ending, report
from graphpod_runtime.front.server.listen import address, listen

if TYPE_CHECKING:
    from graphpod_runtime.streaming.folder import Streamed


def serve(options: ServeOptions) -> int:
    """Serves until it is stopped or cannot go on; returns the exit code."""
    # As process 1 of a container a signal without a handler is ignored; until the front has its own, just end.
    for early in asks_to_end():
        signal.signal(early, _end_at_once)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    checked = _checked(options)
    if isinstance(checked, Ending):
        return report(checked, options.termination_log)
    try:
        http = listen(options.host, options.http_port)
        admin = listen(options.host, options.admin_port)
    except OSError as error:
        return report(Ending(ExitCode.SettingInvalid, error.strerror or str(error)), options.termination_log)
    logging.getLogger("graphpod.front").info(
        "listening: http %s, admin %s", *(address(*bound.getsockname()[:2]) for bound in (http, admin))
    )

    if (ending := _small_files(checked.config)) is not None:
        return report(ending, options.termination_log)

    from graphpod_runtime.front.app import run

    return run(options, checked, http, admin)


def _checked(options: ServeOptions) -> Checked | Ending:
    """What the options name, or how the process ends where a start is ruled out already."""
    try:
        data = options.config.read_bytes()
        config = EngineConfig.parse(data)
        require_start(config, files=config.model.stream is None)
        leader_of(config.features, os.environ)
        return Checked(
            config,
            config_hash(data),
            ApiKey(options.api_key_file) if options.api_key_file is not None else None,
            Certificate(options.tls_folder) if options.tls_folder is not None else None,
        )
    except OSError as error:
        return Ending(ExitCode.ConfigInvalid, f"{options.config}: {error.strerror or error}")
    except ConfigError as error:
        return Ending(ExitCode.ConfigInvalid, f"{options.config}: {error}")
    except (ApiKeyInvalid, TlsInvalid) as error:
        return Ending(ExitCode.SettingInvalid, str(error))
    except StartFailure as failure:
        return _ending(failure)


def _ending(failure: StartFailure) -> Ending:
    return Ending(failure.code, in_own_words(failure.message, os.environ))


def _small_files(config: EngineConfig) -> Ending | None:
    """Where weights are streamed, their source's small files, which all that follows reads; how the process ends where
    they do not come, or where they rule a start out.
    """
    model = config.model
    if model.stream is None:
        return None
    from graphpod_runtime.streaming.folder import prepare

    # Signals are handled between bytecodes of the main thread, and a request that gets no answer is one call: so it is
    # another thread's. What that thread raises is raised here.
    asked: Future[Streamed] = Future()
    threading.Thread(target=_into, args=(asked, partial(prepare, Path(model.path), model.stream)), daemon=True).start()
    try:
        found = asked.result()
    except SourceFailed as error:
        return Ending(ExitCode.SourceFailed, str(error))
    logging.getLogger("graphpod.front").info(
        "weights stay at %s: %d files of them are read at each start", found.uri, len(found.files)
    )
    try:
        require_start(config)  # now that config.json has come
    except StartFailure as failure:
        return _ending(failure)
    return None


def _into(asked: "Future[Streamed]", read: "Callable[[], Streamed]") -> None:
    try:
        asked.set_result(read())
    except BaseException as error:  # noqa: BLE001 (whoever waits raises it)
        asked.set_exception(error)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    os._exit(0)  # without waiting for threads, which may be in a request that gets no answer
