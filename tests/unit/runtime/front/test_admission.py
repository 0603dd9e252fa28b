"""What is open at one time, from the door to the end of the answer."""

import pytest

from graphpod_runtime.front.requests.admission import Admission, Full


def test_tokens_are_counted_until_their_requests_end() -> None:
    admission = Admission(max_named=1)
    with admission.prompt_tokens(60, most=100):
        with pytest.raises(Full, match="open prompts hold 60 tokens, of 100 in all"), admission.prompt_tokens(41, 100):
            raise AssertionError("it came in")
        with admission.prompt_tokens(40, most=100):
            assert admission.tokens == 100
        assert admission.tokens == 60
    assert admission.tokens == 0


def test_what_is_alone_always_comes_in() -> None:
    """A text counts by an estimate, which may be more than there is room for."""
    admission = Admission(max_named=1)
    with admission.prompt_tokens(1000, most=100):
        assert admission.tokens == 1000
