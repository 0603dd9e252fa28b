"""`spec.engine.speculative`: who drafts, how much, and in which batches."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from graphpod_operator.api.base import ApiModel, Integer, ValidationRule
from graphpod_operator.api.weights_uri import weights_uri
from graphpod_policy import SpeculativeMethod
from graphpod_policy.engine_features import WITH_WEIGHTS
from graphpod_policy.features import MOST_TREE_TOKENS


class Speculative(ApiModel):
    """Speculative decoding."""

    RULES = (
        ValidationRule(
            f"(self.method in [{', '.join(repr(method.value) for method in WITH_WEIGHTS)}]) == has(self.draftModel)",
            f"engine.speculative.draftModel is for {', '.join(WITH_WEIGHTS)}, which need it, and for no other method",
            lambda draft: (draft.method in WITH_WEIGHTS) == (draft.draft_model is not None),
        ),
        ValidationRule(
            f"(self.steps - 1) * self.topk <= {MOST_TREE_TOKENS}",
            f"engine.speculative: (steps - 1) * topk is at most {MOST_TREE_TOKENS}",
            lambda draft: (draft.steps - 1) * draft.topk <= MOST_TREE_TOKENS,
        ),
        ValidationRule(
            "!has(self.draftTokens) || self.topk > 1 && "
            "self.draftTokens <= self.topk + (self.steps - 1) * self.topk * self.topk",
            "engine.speculative.draftTokens needs topk above 1, and is at most topk + (steps - 1) * topk * topk",
            lambda draft: (
                draft.draft_tokens is None
                or (draft.topk > 1 and draft.draft_tokens <= draft.topk + (draft.steps - 1) * draft.topk**2)
            ),
        ),
    )

    method: SpeculativeMethod = Field(
        description="How draft tokens are proposed: Ngram from the text so far, DraftModel by a small model, Eagle and "
        "Eagle3 by a head trained for the model, Mtp by a layer of the model's own checkpoint. Required, no default."
    )
    draft_model: Annotated[str, weights_uri("spec.engine.speculative.draftModel")] | None = Field(
        None,
        min_length=7,
        max_length=512,
        description="Weights of the draft model or head, written as spec.model.uri is and on the same claim. "
        "Default: none.",
    )
    steps: Integer = Field(3, ge=1, le=16, description="Drafts per pass, in a tree of each branch. Default: 3.")
    topk: Integer = Field(
        1, ge=1, le=16, description="Branches kept at each draft step; a tree, for heads only. Default: 1 (a chain)."
    )
    draft_tokens: Integer | None = Field(
        None,
        ge=1,
        le=MOST_TREE_TOKENS,
        description=f"Drafts of a tree that a pass verifies. Default: steps * topk, at most {MOST_TREE_TOKENS}.",
    )
    max_batch: Integer | None = Field(
        None,
        ge=1,
        le=4096,
        description="Requests up to which a decode pass verifies drafts; larger batches decode without them. Default: "
        "Auto, measured at the start of each pod.",
    )
