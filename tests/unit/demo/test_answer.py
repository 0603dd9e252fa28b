"""The demo's question to the service."""

import io
import json
import shlex
import urllib.error
import urllib.request
from email.message import Message

import pytest

from demo import answer
from demo.objects import GaveUp


def test_a_service_with_an_api_key_is_named_as_the_cause_of_401(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise urllib.error.HTTPError("http://x", 401, "Unauthorized", Message(), io.BytesIO(b""))

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    with pytest.raises(GaveUp, match="401: the service has an API key"):
        answer.ask("http://x")


def test_the_printed_command_sends_the_request_that_the_demo_sent() -> None:
    words = shlex.split(answer.curl("http://10.0.0.1"))
    assert words[:2] == ["curl", "http://10.0.0.1/v1/chat/completions"]
    assert json.loads(words[words.index("-d") + 1]) == answer.body()
