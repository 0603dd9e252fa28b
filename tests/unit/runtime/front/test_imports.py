"""What the front must not import early, and what its command line names."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from graphpod_policy import ExitCode

from .conftest import engine_json


def run_python(program: str, *arguments: str) -> str:
    """The program's output; it must end well."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_both_ports_accept_before_anything_slow_is_imported(tmp_path: Path) -> None:
    # The hook runs at the first import of each slow module, in the middle of the start: both ports must take a
    # connection by then. The folder has no tokenizer, so the start ends by itself after all of them.
    program = """
        import json, socket, sys
        SLOW = {"msgspec", "uvloop", "uvicorn", "starlette", "fastapi", "pydantic", "jinja2", "tokenizers"}
        listeners, accepted = [], {}

        def hook(event, arguments):
            if event == "socket.bind":
                listeners.append(arguments[0])
            elif event == "import" and arguments[0] in SLOW and arguments[0] not in accepted:
                accepted[arguments[0]] = 0
                for listener in listeners[:2]:
                    socket.create_connection(listener.getsockname()).close()
                    accepted[arguments[0]] += 1

        sys.addaudithook(hook)
        from pathlib import Path
        from graphpod_runtime.front.serve import ServeOptions, serve
        config, cause = Path(sys.argv[1]), Path(sys.argv[2])
        idle = (sys.executable, "-c", "input()")
        options = ServeOptions(config, "127.0.0.1", 0, 0, cause, engine_command=idle)
        print(json.dumps([serve(options), accepted, sorted(SLOW)]))
    """
    (tmp_path / "model").mkdir()
    config, cause = engine_json(tmp_path, tmp_path / "model"), tmp_path / "termination-log"
    code, accepted, slow = json.loads(run_python(program, str(config), str(cause)))
    assert accepted == dict.fromkeys(slow, 2)
    assert code == ExitCode.ModelInvalid
    assert cause.read_text().startswith("ModelInvalid: ")


@pytest.mark.parametrize("word", ["serve", "generate", "convert"])
def test_the_command_line_names_its_commands(word: str) -> None:
    assert f"  {word} " in run_python("import sys; from graphpod_runtime.cli import main; main(['--help'])")


def test_a_front_ends_at_sigterm_whatever_its_threads_do(tmp_path: Path) -> None:
    program = """if True:
        import asyncio, os, signal, sys, threading
        from graphpod_runtime.cli import main
        from graphpod_runtime.front import app
        from graphpod_runtime.front.text import tokenizer

        async def busy():
            for _ in range(40):  # more than the pool has
                asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)

        def read(self, folder):
            asyncio.run_coroutine_threadsafe(busy(), loop[0])
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait()

        loop, before = [], app.Front._first_end
        def first_end(front):
            loop.append(asyncio.get_running_loop())
            return before(front)

        app.Front._first_end, tokenizer.Tokenizer.__init__ = first_end, read
        app.ENGINE_COMMAND = (sys.executable, "-c", "input()")
        sys.exit(main())
    """
    (tmp_path / "model").mkdir()
    config, cause = engine_json(tmp_path, tmp_path / "model"), tmp_path / "termination-log"
    words = ("serve", "--config", str(config), "--http-port", "0", "--admin-port", "0", "--host", "127.0.0.1")
    run_python(program, *words, "--termination-log", str(cause))
    assert re.fullmatch(r"Drained: stopped before Ready, at Loading \d+ s after the start", cause.read_text())
