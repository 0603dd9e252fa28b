"""Where the engine is. Without one every test fails: no client here has another server."""

import os

import pytest

MODEL = "smollm2"


@pytest.fixture(scope="session")
def url() -> str:
    """Of the server, without a slash at the end."""
    return os.environ["GRAPHPOD_URL"]


@pytest.fixture(scope="session")
def api(url: str) -> str:
    """Of the OpenAI API."""
    return f"{url}/v1"
