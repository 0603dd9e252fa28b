"""Whether drafts can be a tree of the form that a spec asks for."""

from collections.abc import Iterator

from graphpod_policy.config import EngineConfig
from graphpod_policy.exit_codes import ExitCode
from graphpod_policy.features import MOST_TREE_TOKENS
from graphpod_policy.start.obstacle import Obstacle

BOUNDS = {"steps": 16, "topk": 16, "draftTokens": MOST_TREE_TOKENS}
"""The most of each field, as the API has them: a configuration may come from elsewhere."""


def tree_problem(steps: int, topk: int, draft_tokens: int | None) -> str:
    """What is wrong with the field `draftTokens`, `steps` or `topk`; empty: nothing is."""
    if topk == 1:
        return "draftTokens is for trees: set topk above 1, or steps instead" if draft_tokens is not None else ""
    asked = {"steps": steps, "topk": topk, "draftTokens": 1 if draft_tokens is None else draft_tokens}
    for field, value in asked.items():
        if not 1 <= value <= BOUNDS[field]:
            return f"{field} is {value}: set 1 to {BOUNDS[field]}"
    # Every level but the last is drafted from; its nodes have slots behind each other, and a mask reaches them all.
    if (drafted := (steps - 1) * topk) > MOST_TREE_TOKENS:
        return f"(steps - 1) x topk is {drafted}, and the limit is {MOST_TREE_TOKENS}: lower one of them"
    if (draft_tokens or 0) > (most := topk + (steps - 1) * topk * topk):
        return f"draftTokens is {draft_tokens}, and {steps} steps of topk {topk} draft {most}: lower it"
    return ""


def tree_too_large(config: EngineConfig) -> Iterator[Obstacle]:
    """That the tree of `config` cannot be drafted."""
    asked = config.features
    problem = tree_problem(asked.speculative_steps, asked.speculative_topk, asked.speculative_draft_tokens)
    if asked.speculative is not None and problem:
        yield Obstacle.of(ExitCode.SettingInvalid, f"spec.engine.speculative: {problem}")
