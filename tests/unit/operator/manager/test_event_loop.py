"""What the operator's event loop says of what nobody caught."""

import logging

import pytest

from graphpod_operator.manager.event_loop import CLOSED, new_loop


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (RuntimeError(f"unable to perform operation on <TCPTransport closed=True>; {CLOSED}"), logging.DEBUG),
        (RuntimeError("something else"), logging.ERROR),
        (ValueError(CLOSED), logging.ERROR),
    ],
)
def test_a_connection_that_its_peer_closed_is_no_error_and_all_else_is(
    caplog: pytest.LogCaptureFixture, error: Exception, level: int
) -> None:
    caplog.set_level(logging.DEBUG)
    loop = new_loop()
    try:
        loop.call_exception_handler({"message": "nobody caught it", "exception": error})
    finally:
        loop.close()
    assert [record.levelno for record in caplog.records if record.name.startswith(("asyncio", "graphpod"))] == [level]
