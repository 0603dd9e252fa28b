"""`graphpod models`: what claims hold of downloaded weights, and which services use it."""

import json
from typing import Any

from graphpod_operator.cache.claim import Claim
from graphpod_operator.cache.service import Service
from graphpod_operator.terminal.views.models import as_list, rows, text
from tests.unit.operator.downloads import DOWNLOAD, MODEL, URI, claim
from tests.unit.operator.objects import NAMESPACE, inference_service

STORED = f"models.graphpod.dev/{DOWNLOAD.folder}"
VALUE = json.dumps({"uri": URI, "commit": "0123456789abcdef0123456789abcdef", "bytes": 17_300_000_000, "claim": "u"})


def claims(**annotations: str) -> list[Claim]:
    raw = claim(**annotations)
    return [Claim.of({**raw, "metadata": {**raw["metadata"], "uid": "u", "resourceVersion": "1"}})]


def services(*names: str, **spec: Any) -> list[Service]:
    return [Service.of(inference_service(name, **{"model": MODEL, **spec})) for name in names]


def test_a_folder_is_shown_with_its_source_and_users() -> None:
    found = rows(claims(**{STORED: VALUE}), services("chat", "batch"))
    assert text(found, with_namespace=False).splitlines() == [
        f"{'CLAIM':8}{'FOLDER':15}{'URI':20}{'COMMIT':21}{'SIZE':10}USED BY",
        f"shared  {DOWNLOAD.folder}  {URI}  0123456789abcdef012  16.1 GiB  batch, chat",
    ]
    (one,) = as_list(found)
    assert (one["namespace"], one["bytes"], one["usedBy"]) == (NAMESPACE, 17_300_000_000, ("batch", "chat"))


def test_what_a_service_waits_for_is_shown_as_not_complete() -> None:
    (one,) = rows(claims(), services("chat"))
    assert one.cells[3:] == (URI, "-", "not complete", "chat")


def test_what_no_service_uses_is_shown_too_and_control_characters_are_not() -> None:
    (one,) = rows(claims(**{STORED: json.dumps({"commit": "\x1b[31mabc", "claim": "u"})}), ())
    assert one.cells[3:] == ("-", "?[31mabc", "-", "-")


def test_nothing_is_said_so() -> None:
    plain = [Service.of(inference_service())]
    assert text(rows(claims(), plain), with_namespace=True) == "No claim has downloaded weights.\n"
