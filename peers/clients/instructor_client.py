"""instructor: an object of pydantic, by tools and by a JSON schema."""

from typing import Literal

import instructor
import pytest
from openai import OpenAI
from pydantic import BaseModel, ConfigDict

from .conftest import MODEL


class City(BaseModel):
    """A city, without other fields: a small model would go on with those."""

    model_config = ConfigDict(extra="forbid")

    name: Literal["Paris", "Berlin"]
    capital: bool


@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA])
def test_an_object_comes_back(api: str, mode: instructor.Mode) -> None:
    client = instructor.from_openai(OpenAI(base_url=api, api_key="none", max_retries=0, timeout=300), mode=mode)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    found = client.chat.completions.create(
        model=MODEL, messages=question, response_model=City, max_tokens=80, temperature=0, max_retries=0
    )
    assert isinstance(found, City)
