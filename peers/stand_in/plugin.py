"""A pytest plugin for vLLM's tests: the package `vllm`, and their own `tests.utils` and `tests.conftest`.

Those two import half of vLLM; the suite's other files are as published.
"""

import base64
import sys
from types import ModuleType

import pytest

from peers.stand_in import modules

modules.install()

from peers.stand_in import server  # noqa: E402


def _module(name: str, **values: object) -> None:
    made = ModuleType(name)
    made.__dict__.update(values)
    sys.modules[name] = made


_module("tests.utils", RemoteOpenAIServer=server.RemoteOpenAIServer, ROCM_EXTRA_ARGS=[])
sys.modules.setdefault("pybase64", base64)  # the same functions, faster
_module("tests.conftest", LocalAssetServer=modules.Foreign)


@pytest.fixture
def local_asset_server() -> None:
    """No server of images: tests of those stand in the list of refusals."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Names the test as schemathesis' plugin for earlier versions of pytest reads it."""
    item._nodeid = item.nodeid  # type: ignore[attr-defined]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """The last engine ends with the run."""
    server.stop()
