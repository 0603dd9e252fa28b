"""Answers of /v1/embeddings, /v1/score and /v1/rerank: msgspec, because they are ours."""

import msgspec


class PromptUsage(msgspec.Struct, frozen=True):
    """Tokens of a request without generated ones."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0


class EmbeddingItem(msgspec.Struct, frozen=True):
    """One vector: numbers, or little-endian float32 in base64."""

    index: int
    embedding: list[float] | str
    object: str = "embedding"


class EmbeddingReply(msgspec.Struct, frozen=True):
    """The vectors of all inputs, in their order."""

    id: str
    created: int
    model: str
    data: list[EmbeddingItem]
    usage: PromptUsage
    object: str = "list"


class Score(msgspec.Struct, frozen=True):
    """How close two texts are: the cosine of their vectors, -1 to 1."""

    index: int
    score: float
    object: str = "score"


class ScoreReply(msgspec.Struct, frozen=True):
    """One score for each pair."""

    id: str
    created: int
    model: str
    data: list[Score]
    usage: PromptUsage
    object: str = "list"


class RankedDocument(msgspec.Struct, frozen=True):
    """The text of a document."""

    text: str


class Rank(msgspec.Struct, frozen=True):
    """One document; `index` is its place in the request. `document` is absent where it was not asked for."""

    index: int
    document: RankedDocument | msgspec.UnsetType
    relevance_score: float


class RerankReply(msgspec.Struct, frozen=True):
    """Documents, the closest to the query first."""

    id: str
    model: str
    usage: PromptUsage
    results: list[Rank]
