"""A pytest plugin for openai-python's tests: one engine for the run, and its address where they look for a server.

Their answers come from a mock of any model; the adapter renames each model to ours.
"""

import os

import pytest

from graphpod_runtime.bench.serve.drive.own_engine import OwnEngine
from peers.adapter import Adapter
from peers.settings import Settings

NAME = "smollm2"

_settings = Settings.of_environment()
_engine = OwnEngine(["serve", "--model", str(_settings.weights), "--name", NAME, *_settings.engine])
_engine.ready()
_adapter = Adapter(_engine.url, NAME, _settings.cap).__enter__()
os.environ["TEST_API_BASE_URL"] = f"{_adapter.url}/v1"


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """The engine ends with the run."""
    _adapter.__exit__(None, None, None)
    _engine.__exit__(None, None, None)
