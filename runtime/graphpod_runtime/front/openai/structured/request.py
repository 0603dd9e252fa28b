"""The fields of a request that say what its answer must be: OpenAI's, vLLM's and SGLang's."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from graphpod_runtime.front.openai.fields import STRICT, Text
from graphpod_runtime.front.openai.unbuilt_fields import Ignored, take_unknown

Schema = dict[str, Any] | bool
"""A JSON schema."""
SchemaOrText = Schema | Text
"""One, or its JSON as a text."""
NAMING = ("name", "description", "strict")
"""Fields about a schema that have no effect: the model does not read it, and it is always kept."""
Choices = Annotated[list[Text], Field(min_length=1, fail_fast=True)]


class JsonSchemaFormat(BaseModel):
    """`response_format.json_schema`. The schema is always kept, whatever `strict` says."""

    model_config = STRICT

    schema_: Schema = Field(alias="schema")
    """The answer fits this JSON schema."""
    name: str | None = None
    """No effect."""
    description: str | None = None
    """No effect."""
    strict: bool | None = None
    """No effect: the schema is always kept."""


class ResponseFormat(BaseModel):
    """`response_format`."""

    model_config = STRICT

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    """text: anything; json_object: any JSON object; json_schema: JSON that fits `json_schema`; structural_tag: text in
    which `triggers` begin `structures`."""
    json_schema: JsonSchemaFormat | None = None
    """With type json_schema."""
    schema_: Schema | None = Field(None, alias="schema")
    """With type json_object: JSON that fits this schema."""
    triggers: list[Text] | None = None
    """With type structural_tag: after one of these in the text, the answer goes on as one of the structures."""
    structures: list[dict[str, Any]] | None = None
    """With type structural_tag: objects of `begin`, `schema` and `end`; each `begin` starts with a trigger."""
    format: dict[str, Any] | None = None
    """With type structural_tag: xgrammar's newer description, instead of triggers and structures."""


class StructuredOutputs(BaseModel):
    """`structured_outputs`, vLLM's. One of the first six."""

    model_config = STRICT

    json_: SchemaOrText | None = Field(None, alias="json")
    """The answer fits this JSON schema."""
    json_object: bool | None = None
    """The answer is any JSON object."""
    regex: Text | None = None
    """The whole answer matches this regular expression, without look-around or references."""
    choice: Choices | None = None
    """The answer is one of these strings."""
    grammar: Text | None = None
    """The answer follows this grammar, in GBNF or Lark."""
    structural_tag: Text | None = None
    """As `response_format` of that type, as JSON in a string."""
    whitespace_pattern: Text | None = None
    """Between two tokens of JSON. Default: nothing, a space, or a new line with its indentation."""
    disable_any_whitespace: bool | None = None
    """No blanks between the tokens of JSON."""
    disable_additional_properties: bool | None = None
    """Objects of the schema that list properties have no others, unless they set `additionalProperties`."""
    disable_fallback: bool | None = None
    """No effect: there is no other backend."""


class StructuredFields(BaseModel):
    """The fields, for a request to have. `grammar_of` reads them."""

    model_config = STRICT

    response_format: ResponseFormat | None = None
    """What the answer must be. [Structured output](../how-to/structured-output.md) has examples."""
    structured_outputs: StructuredOutputs | None = None
    """The same, in vLLM's words."""
    guided_json: SchemaOrText | None = None
    """As `structured_outputs.json`."""
    guided_regex: Text | None = None
    """As `structured_outputs.regex`."""
    guided_choice: Choices | None = None
    """As `structured_outputs.choice`."""
    guided_grammar: Text | None = None
    """As `structured_outputs.grammar`."""
    guided_whitespace_pattern: Text | None = None
    """As `structured_outputs.whitespace_pattern`, with `guided_json`."""
    json_schema: SchemaOrText | None = None
    """SGLang's name of `structured_outputs.json`."""
    regex: Text | None = None
    """SGLang's name of `structured_outputs.regex`."""
    ebnf: Text | None = None
    """SGLang's name of `structured_outputs.grammar`."""
    structural_tag: Text | None = None
    """SGLang's name of `structured_outputs.structural_tag`."""

    def take_ignored_of_structured(self, ignored: Ignored) -> None:
        """Adds the unknown fields within these."""
        if (format := self.response_format) is not None:
            take_unknown(format, {}, "response_format.", "response_format.", ignored)
            if format.json_schema is not None:
                at = "response_format.json_schema."
                take_unknown(format.json_schema, {}, at, at, ignored)
                ignored.update(
                    dict.fromkeys(at + name for name in NAMING if getattr(format.json_schema, name) is not None)
                )
        if (outputs := self.structured_outputs) is not None:
            take_unknown(outputs, {}, "structured_outputs.", "structured_outputs.", ignored)
            if outputs.disable_fallback is not None:
                ignored["structured_outputs.disable_fallback"] = None
