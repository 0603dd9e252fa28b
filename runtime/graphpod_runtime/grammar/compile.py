"""Whether a grammar can be used, before anything runs for it."""

from llguidance import LLMatcher, LLTokenizer

from graphpod_runtime.grammar.bounds import LIMITS, GrammarInvalid
from graphpod_runtime.grammar.source import source_of
from graphpod_runtime.wire.messages import Grammar

SHOWN = 400
"""Characters of a reason."""
ADVICE = (("Enable 'coerce_one_of' option to approximate oneOf with anyOf", "Use anyOf."),)
"""What llguidance says to its caller, and what a client can do."""


def compiled(vocabulary: LLTokenizer, grammar: Grammar) -> LLMatcher:
    """A matcher at the beginning of an answer, whose first mask is computed. Takes up to a second; other threads run
    meanwhile. GrammarInvalid for a grammar that is wrong, too large, or that no answer fits but an empty one."""
    try:
        source = source_of(grammar, vocabulary)
    except (ValueError, RecursionError) as error:
        # GrammarInvalid is one; llguidance has its own for texts that it cannot take apart.
        raise error if isinstance(error, GrammarInvalid) else GrammarInvalid(_reason(str(error))) from error
    matcher = LLMatcher(vocabulary, source, limits=LIMITS, log_level=0)
    if not matcher.is_error():
        if warnings := matcher.get_grammar_warnings():
            raise GrammarInvalid(_reason("; ".join(warnings)))
        mask = matcher.compute_bitmask()
    if matcher.is_error():
        raise GrammarInvalid(_reason(matcher.get_error()))
    if matcher.is_accepting() and _only_ends(mask, vocabulary):
        raise GrammarInvalid("no answer fits the grammar but the empty one")
    return matcher


def _only_ends(mask: bytes, vocabulary: LLTokenizer) -> bool:
    """Whether a mask allows no token but those that end an answer."""
    allowed = int.from_bytes(mask, "little")
    for id in vocabulary.eos_tokens:
        allowed &= ~(1 << id)
    return allowed == 0


def _reason(message: str) -> str:
    """llguidance's first words, without its dump of the parser's state."""
    message = message.partition("\n<")[0].strip()
    for theirs, ours in ADVICE:
        message = message.replace(theirs, ours)
    if message.startswith("panic:"):
        return "the grammar is too large"
    if message == "NoExtensionBias":
        return "no answer fits the grammar"
    return message if len(message) <= SHOWN else f"{message[:SHOWN]}…"
