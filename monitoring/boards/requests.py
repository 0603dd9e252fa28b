"""The board of requests: what clients ask for, and what that costs passes, grammars, drafts and traces."""

from monitoring.boards.row import (
    ALERT_ABOVE,
    ALERT_BELOW,
    OF_SERVICES,
    POD_MARKS,
    Board,
    Kind,
    Level,
    Panel,
    Query,
    Section,
    Tone,
    Unit,
    mean,
    quantiles,
    rate,
    selected,
)

_IDLE = "Empty while no request is answered."
_NO_GRAMMAR = "Empty while no request has a grammar (response_format, tools with strict, or guided decoding)."
_NO_DRAFTS = "Empty if spec.engine.speculative is not set, or while batches are larger than drafts pay for."
_COMPILED, _FOUND = "graphpod_grammar_compile_duration_seconds", "graphpod_grammar_cache_hits_total"
_MASKS = "graphpod_grammar_mask_duration_seconds"


def _mean(histogram: str) -> Query:
    """The mean of a histogram, by service."""
    return Query(mean(histogram, "namespace, inferenceservice"), "{{namespace}}/{{inferenceservice}}")


ASKED = Section(
    "What clients ask for",
    (
        Panel(
            "Longest answer that a request allows",
            "max_tokens of a request, or what the context leaves. Far above the length of answers: clients set no "
            "limit.",
            Kind.Lines,
            Unit.Tokens,
            quantiles("graphpod_request_max_tokens", whole=True),
            _IDLE,
        ),
        Panel(
            "Answers for a prompt",
            "Mean of n or best_of. Each answer decodes on its own; the prompt is computed once.",
            Kind.Lines,
            Unit.Number,
            (_mean("graphpod_request_choices"),),
            _IDLE,
        ),
        Panel(
            "Prompt tokens computed",
            "Tokens of a prompt that prefill computed. Below the length of prompts: the prefix cache had the rest.",
            Kind.Lines,
            Unit.Tokens,
            quantiles("graphpod_request_prefill_computed_tokens", whole=True),
            _IDLE,
        ),
        Panel(
            "Requests with a grammar, by kind",
            "Requests whose answers must follow a grammar. 0 throughout: no client asks for structured output.",
            Kind.Stacked,
            Unit.RequestsPerSecond,
            (Query(f"sum by (kind) ({rate('graphpod_grammar_requests_total')})", "{{kind}}"),),
        ),
        Panel(
            "Prompts for vectors, by kind",
            "Prompts of embeddings, scores and rankings. They need prefill passes only. 0 throughout: no client asks.",
            Kind.Stacked,
            Unit.RequestsPerSecond,
            (Query(f"sum by (kind) ({rate('graphpod_pooled_prompts_total')})", "{{kind}}"),),
        ),
        Panel(
            "Spans of traced requests, by result",
            "Good: only exported. failed: the collector did not take them. dropped: too many waited.",
            Kind.Stacked,
            Unit.PerSecond,
            (Query(f"sum by (result) ({rate('graphpod_trace_spans_total')})", "{{result}}"),),
            "Empty if spec.engine.tracing is not set.",
            tones=(("exported", Tone.Good), ("failed", Tone.Bad), ("dropped", Tone.Warn)),
        ),
    ),
)

PASSES = Section(
    "Passes",
    (
        Panel(
            "Tokens of a pass",
            "Tokens generated in one pass, and the prompts that it completed. Low under load: passes are not full.",
            Kind.Lines,
            Unit.Tokens,
            quantiles("graphpod_iteration_tokens", whole=True),
            _IDLE,
        ),
        Panel(
            "Time from admission to the last token",
            "Time that a request spent in the engine without the queue: prefill and decode.",
            Kind.Lines,
            Unit.Seconds,
            quantiles("graphpod_request_inference_time_seconds"),
            _IDLE,
        ),
        Panel(
            "Preemptions of a request",
            "Mean times that an answered request was set back to the queue because KV pages ran out. Good: 0.",
            Kind.Lines,
            Unit.Number,
            (_mean("graphpod_request_preemptions"),),
            _IDLE,
        ),
        Panel(
            "Most prompt tokens of a prefill pass",
            "Prefill takes so many tokens between two decode passes. Higher: first tokens come sooner, gaps get "
            "longer.",
            Kind.Bars,
            Unit.Tokens,
            (Query(f"max by (namespace, pod) ({selected('graphpod_prefill_budget_tokens')})", "{{pod}}"),),
            width=12,
        ),
        Panel(
            "Pages of the KV cache",
            "Tokens of a page, and the pages that requests can own.",
            Kind.Table,
            Unit.Count,
            (
                Query(
                    "max by (namespace, inferenceservice, pod, page_size, pages) "
                    f"({selected('graphpod_kv_cache_info')})",
                    "",
                ),
            ),
            "Empty until a pod has sized its KV cache.",
            width=12,
        ),
    ),
)

GRAMMARS = Section(
    "Grammars",
    (
        Panel(
            "Share of grammars found compiled",
            "Requests whose grammar had been compiled before. Low: clients send a new schema with each request.",
            Kind.Lines,
            Unit.Share,
            (
                Query(
                    f"sum by (namespace, inferenceservice) ({rate(_FOUND)})"
                    f" / (sum by (namespace, inferenceservice) ({rate(_FOUND)})"
                    f" + sum by (namespace, inferenceservice) ({rate(f'{_COMPILED}_count')}))",
                    "{{namespace}}/{{inferenceservice}}",
                ),
            ),
            _NO_GRAMMAR,
        ),
        Panel(
            "Time to compile a grammar",
            "The request waits for it and other requests go on. Refused grammars count too.",
            Kind.Lines,
            Unit.Seconds,
            quantiles(_COMPILED),
            _NO_GRAMMAR,
        ),
        Panel(
            "Time to write the masks of a pass",
            "The host's time for the token masks of one pass: all requests of that pass wait for it.",
            Kind.Lines,
            Unit.Seconds,
            quantiles(_MASKS),
            _NO_GRAMMAR,
        ),
        Panel(
            "Share of the time spent on masks",
            "Of the engine's wall time, by pod. Above 20 % masks slow the decoding of all requests down: alert "
            "GraphpodMasksSlow. 0: no request has a grammar.",
            Kind.Lines,
            Unit.Share,
            (Query(f"sum by (namespace, pod) ({rate(f'{_MASKS}_sum')})", "{{pod}}"),),
            width=24,
            levels=(Level(0.2, ALERT_ABOVE),),
        ),
    ),
)

DRAFTS = Section(
    "Drafts",
    (
        Panel(
            "Share of drafts that were right",
            "Of the draft tokens that decode passes verified. Below 10 % remove spec.engine.speculative, unless they "
            "are trees that bring half a token a pass: alert GraphpodDraftsWrong.",
            Kind.Lines,
            Unit.Share,
            (
                Query(
                    f"sum by (namespace, inferenceservice) ({rate('graphpod_speculation_accepted_tokens_total')})"
                    f" / sum by (namespace, inferenceservice) ({rate('graphpod_speculation_proposed_tokens_total')})",
                    "{{namespace}}/{{inferenceservice}}",
                ),
            ),
            _NO_DRAFTS,
            levels=(Level(0.1, ALERT_BELOW),),
        ),
        Panel(
            "Right drafts of a request in a pass",
            "Mean. A request gets so many tokens from a pass in addition to the one of plain decoding.",
            Kind.Lines,
            Unit.Number,
            (_mean("graphpod_speculation_accepted_length"),),
            _NO_DRAFTS,
        ),
        Panel(
            "Passes with drafts",
            "Decode passes a second that verified drafts.",
            Kind.Lines,
            Unit.PerSecond,
            (Query(f"sum by (method) ({rate('graphpod_speculation_passes_total')})", "{{method}}"),),
            _NO_DRAFTS,
        ),
        Panel(
            "Tokens without drafts, by reason",
            "Tokens a second that were decoded without drafts. Batch: more requests ran than drafts pay for. Behind: "
            "the draft model reads the text still. Grammar: the mask needs the token before. Penalties: trees have "
            "no text in a row. NothingFound: the text had no match. Room: one token was left, or no page.",
            Kind.Stacked,
            Unit.TokensPerSecond,
            (Query(f"sum by (reason) ({rate('graphpod_speculation_plain_rows_total')})", "{{reason}}"),),
            _NO_DRAFTS,
            width=12,
        ),
        Panel(
            "Largest batch with drafts",
            "Up to so many requests a decode pass verifies drafts.",
            Kind.Bars,
            Unit.Count,
            (Query(f"max by (namespace, pod) ({selected('graphpod_speculation_max_batch')})", "{{pod}}"),),
            _NO_DRAFTS,
            width=12,
        ),
    ),
)

BOARD = Board(
    "requests",
    "graphpod / Requests",
    "What clients ask for, and what that costs passes, grammars, drafts and traces.",
    OF_SERVICES,
    (ASKED, PASSES, GRAMMARS, DRAFTS),
    POD_MARKS,
)
