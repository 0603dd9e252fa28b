"""`graphpod-engine serve --node-index 1`: the ranks of a machine that is not the leader's. No ports, no requests."""

import logging
import os
import signal
import tempfile
from pathlib import Path
from typing import NoReturn

from graphpod_policy import ConfigError, EngineConfig, ExitCode
from graphpod_policy.start.flags import in_own_words
from graphpod_runtime.base.failure import StartFailure
from graphpod_runtime.base.group_key import GROUP_KEY, KeyInvalid
from graphpod_runtime.base.known_model import require_start
from graphpod_runtime.base.leader import LEADER, Leader, ports_of
from graphpod_runtime.base.process.signals import asks_to_end
from graphpod_runtime.engine.ranks.worker import work
from graphpod_runtime.front.requests.termination import Ending, report

log = logging.getLogger("graphpod.engine")


def main(path: Path, node: int, termination_log: Path | None) -> int:
    """Runs the ranks of machine `node` to their end; returns the exit code, whose cause is the termination message."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    for number in asks_to_end():
        signal.signal(number, _leave)
    return report(_ending(path, node), termination_log)


def _leave(*_: object) -> NoReturn:
    """Of a worker whose ranks have not begun, or that is asked again."""
    raise SystemExit(ExitCode.Drained)


def _stay() -> None:
    """From now on the leader's drains and lets the others go: a worker that left before would end it amid requests."""
    for number in asks_to_end():
        signal.signal(number, _wait_for_the_leader)


def _wait_for_the_leader(number: int, _: object) -> None:
    how = ""
    if number == signal.SIGINT:
        signal.signal(signal.SIGINT, _leave)
        how = "; a second Ctrl-C ends it now, and the engine with it"
    log.info("asked to end: the leader's machine lets this one go%s", how)


def _ending(path: Path, node: int) -> Ending:
    try:
        config = EngineConfig.parse(path.read_bytes())
        if (what := _no_machine(node, config.features.nodes)) is not None:
            return Ending(ExitCode.SettingInvalid, what)
        leader = Leader.parse(
            os.environ.get(LEADER, ""), ports_of(config.features.ranks), os.environ.get(GROUP_KEY, "")
        )
    except OSError as error:
        return Ending(ExitCode.ConfigInvalid, f"{path}: {error.strerror or error}")
    except ConfigError as error:
        return Ending(ExitCode.ConfigInvalid, f"{path}: {error}")
    except KeyInvalid as error:
        return Ending(ExitCode.SettingInvalid, str(error))
    except ValueError as error:
        return Ending(ExitCode.SettingInvalid, f"--node-index {node} needs --leader HOST:PORT: {error}")
    try:
        require_start(config)
        with tempfile.TemporaryDirectory(prefix="graphpod-worker-") as folder:
            fatal = work(config, Path(folder), leader, node, begins=_stay)
    except StartFailure as failure:
        return Ending(failure.code, in_own_words(failure.message, os.environ))
    return Ending(ExitCode.Drained, "") if fatal is None else Ending(ExitCode(fatal.code), fatal.message)


def _no_machine(node: int, nodes: int) -> str | None:
    """Why none of `nodes` machines has this number and ranks alone."""
    if nodes == 1:
        return f"--node-index {node}: the engine has 1 machine; set --nodes to the number of machines"
    if not 0 < node < nodes:
        what = f"--node-index {node}: the engine has {nodes} machines, with the numbers 0 to {nodes - 1}"
        return f"{what}; use one of these, or set --nodes to a higher number"
    return None
