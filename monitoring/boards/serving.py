"""The board of serving: what clients get, against the objectives, and what holds them up."""

from monitoring.boards.host_cache import HOST_CACHE
from monitoring.boards.row import (
    ALERT_ABOVE,
    GOAL,
    LOWEST,
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
    quantiles,
    rate,
    selected,
)
from monitoring.rules.objectives import ITL_BOUND, TTFT_BOUND, within
from monitoring.rules.row import SERVICE, by

_IDLE = "Empty while no request is answered."
_TTFT, _ITL = "graphpod_time_to_first_token_seconds", "graphpod_inter_token_latency_seconds"
_ERRORS = 'finish_reason=~"error|rejected"'


def _within(objective: str, histogram: str, bound: str, window: str = "$__rate_interval") -> str:
    """Share of the observations within each service's objective."""
    good = within(objective, lambda which: f"rate({selected(f'{histogram}_bucket', which)}[{window}])", bound)
    return f"{good} / {by(SERVICE)} (rate({selected(f'{histogram}_count')}[{window}]))"


def _answered(window: str) -> str:
    """Share of the requests that got an answer."""
    bad = selected("graphpod_requests_total", _ERRORS)
    return (
        f"1 - {by(SERVICE)} (rate({bad}[{window}]))"
        f" / {by(SERVICE)} (rate({selected('graphpod_requests_total')}[{window}]))"
    )


def _spent(good: str, share: float) -> str:
    """What is spent of a budget when so much is good and `share` may be bad: 1 is all of it."""
    return f"(1 - ({good})) / {share:g}"


_OF_SERVICE = 'namespace=~"$namespace",inferenceservice=~"$inferenceservice"'


def _objective(name: str, bound: str) -> Query:
    """What each service is held against: its own objective, or else the default."""
    own = f'graphpod_operator_objective_seconds{{{_OF_SERVICE},objective="{name}"}}'
    default = f"{by(SERVICE, 'max')} ({selected('graphpod_build_info')}) * {float(bound):g}"
    return Query(f"{by(SERVICE, 'max')} ({own}) or {default}", "{{namespace}}/{{inferenceservice}} objective", True)


OBJECTIVES = Section(
    "Objectives",
    (
        Panel(
            "Share within the objective",
            "First tokens (TTFT) and gaps between tokens within spec.slo, by default 1 s and 50 ms: goal 99 %. "
            "Requests with an answer: goal 99.9 %. spec.slo counts if the recording rules are installed.",
            Kind.Lines,
            Unit.Share,
            (
                Query(_within("ttft", _TTFT, TTFT_BOUND), "{{namespace}}/{{inferenceservice}} TTFT"),
                Query(_within("itl", _ITL, ITL_BOUND), "{{namespace}}/{{inferenceservice}} gaps"),
                Query(_answered("$__rate_interval"), "{{namespace}}/{{inferenceservice}} answered"),
            ),
            _IDLE,
            width=16,
            levels=(Level(0.99, GOAL), Level(0.999, GOAL)),
        ),
        Panel(
            "Error budget spent",
            "In budgets, within the time shown. 0: nothing failed. 1: as much failed as the goal allows. 3: three "
            "times as much. Above 1 the objective is missed.",
            Kind.Number,
            Unit.Number,
            (
                Query(
                    _spent(_within("ttft", _TTFT, TTFT_BOUND, "$__range"), 0.01),
                    "{{namespace}}/{{inferenceservice}} TTFT",
                ),
                Query(
                    _spent(_within("itl", _ITL, ITL_BOUND, "$__range"), 0.01), "{{namespace}}/{{inferenceservice}} gaps"
                ),
                Query(_spent(_answered("$__range"), 0.001), "{{namespace}}/{{inferenceservice}} answered"),
            ),
            _IDLE,
            steps=((LOWEST, Tone.Good), (1, Tone.Bad)),
        ),
    ),
)

LATENCY = Section(
    "Latency",
    (
        Panel(
            "Time to first token", "From receiving a request to its first token. p50: half of the requests took less. "
            "Dashed: the objective.", Kind.Lines, Unit.Seconds, (*quantiles(_TTFT), _objective("ttft", TTFT_BOUND)),
            _IDLE,
        ),
        Panel(
            "Gaps between tokens", "Each gap counts: p99 shows single stalls. Dashed: the objective.", Kind.Lines,
            Unit.Seconds, (*quantiles(_ITL), _objective("itl", ITL_BOUND)), _IDLE,
        ),
        Panel(
            "Time of a whole request", "From receiving a request to its last token.", Kind.Lines, Unit.Seconds,
            quantiles("graphpod_e2e_request_latency_seconds"), _IDLE,
        ),
        Panel(
            "Mean gap of a request", "The pace of requests: each counts once, by the mean of its gaps.",
            Kind.Lines, Unit.Seconds, quantiles("graphpod_time_per_output_token_seconds"), _IDLE,
        ),
        Panel(
            "Time in the queue", "Until a pass admits a request. Long: raise spec.replicas.", Kind.Lines,
            Unit.Seconds, quantiles("graphpod_request_queue_time_seconds"), _IDLE,
        ),
        Panel(
            "Time of prefill", "From admission to the first token.", Kind.Lines, Unit.Seconds,
            quantiles("graphpod_request_prefill_time_seconds"), _IDLE,
        ),
        Panel(
            "Time of decode", "From the first token to the last.", Kind.Lines, Unit.Seconds,
            quantiles("graphpod_request_decode_time_seconds"), _IDLE,
        ),
        Panel(
            "Length of prompts", "Tokens of the prompt, of requests answered in full.", Kind.Lines, Unit.Tokens,
            quantiles("graphpod_request_prompt_tokens", whole=True), _IDLE,
        ),
        Panel(
            "Length of answers", "Tokens generated, of requests answered in full.", Kind.Lines, Unit.Tokens,
            quantiles("graphpod_request_generation_tokens", whole=True), _IDLE,
        ),
    ),
)  # fmt: skip

LOAD = Section(
    "Load",
    (
        Panel(
            "Requests, by how they ended",
            "stop and length got their answer. rejected: the queue was full. abort: the client left. "
            "slow_reader: the client did not read its answer.",
            Kind.Stacked,
            Unit.RequestsPerSecond,
            (Query(f"sum by (finish_reason) ({rate('graphpod_requests_total')})", "{{finish_reason}}"),),
            tones=(
                ("stop|length", Tone.Good),
                ("error|rejected", Tone.Bad),
                ("abort|slow_reader", Tone.Warn),
            ),
        ),
        Panel(
            "HTTP answers, by status code",
            "Good: 200. 503: the queue is full, or the pod is not Ready.",
            Kind.Stacked,
            Unit.RequestsPerSecond,
            (Query(f"sum by (code) ({rate('graphpod_http_requests_total')})", "{{code}}"),),
            tones=(("2..", Tone.Good), ("4..", Tone.Warn), ("5..", Tone.Bad)),
        ),
        Panel(
            "Tokens",
            "Tokens a second: prompts accepted, and answers generated.",
            Kind.Lines,
            Unit.TokensPerSecond,
            (
                Query(f"sum({rate('graphpod_prompt_tokens_total')})", "prompt"),
                Query(f"sum({rate('graphpod_generation_tokens_total')})", "generated"),
            ),
        ),
        Panel(
            "Requests running and waiting",
            "Requests that hold KV pages, and those in the queue. Waiting above running for long: add replicas.",
            Kind.Lines,
            Unit.Count,
            (
                Query(
                    f"sum by (namespace, inferenceservice) ({selected('graphpod_requests_running')})",
                    "{{namespace}}/{{inferenceservice}} running",
                ),
                Query(
                    f"sum by (namespace, inferenceservice) ({selected('graphpod_requests_waiting')})",
                    "{{namespace}}/{{inferenceservice}} waiting",
                ),
            ),
        ),
        Panel(
            "KV cache in use",
            "Share of the KV pages that requests hold. At 100 % requests wait or are preempted. Above 95 % "
            "with preemptions: alert GraphpodKVCacheSaturated.",
            Kind.Lines,
            Unit.Share,
            (Query(f"max by (namespace, pod) ({selected('graphpod_kv_cache_usage_ratio')})", "{{pod}}"),),
            levels=(Level(0.95, ALERT_ABOVE),),
        ),
        Panel(
            "Hits of the prefix cache",
            "Share of prompt tokens that the prefix cache had, and prefill did not compute.",
            Kind.Lines,
            Unit.Share,
            (
                Query(
                    f"sum by (namespace, inferenceservice) ({rate('graphpod_prefix_cache_hit_tokens_total')})"
                    f" / sum by (namespace, inferenceservice) ({rate('graphpod_prefix_cache_queried_tokens_total')})",
                    "{{namespace}}/{{inferenceservice}}",
                ),
            ),
            _IDLE,
        ),
        Panel(
            "Preemptions, and logits that are not finite",
            "Requests set back because the KV cache was full, and requests ended by a NaN or an infinity. Good: 0.",
            Kind.Lines,
            Unit.RequestsPerSecond,
            (
                Query(f"sum by (namespace, pod) ({rate('graphpod_preemptions_total')})", "{{pod}} preempted"),
                Query(f"sum by (namespace, pod) ({rate('graphpod_nonfinite_logits_total')})", "{{pod}} not finite"),
            ),
        ),
        Panel(
            "Tokens that the prefix cache evicts",
            "Prefixes given up because requests needed their pages. High: prompts that come again are computed again.",
            Kind.Lines,
            Unit.TokensPerSecond,
            (Query(f"sum by (namespace, pod) ({rate('graphpod_prefix_cache_evicted_tokens_total')})", "{{pod}}"),),
        ),
        Panel(
            "Size of the KV cache",
            "Tokens that the KV cache of each pod can hold, and tokens of cached prefixes.",
            Kind.Bars,
            Unit.Tokens,
            (
                Query(f"max by (namespace, pod) ({selected('graphpod_kv_cache_capacity_tokens')})", "{{pod}} capacity"),
                Query(f"max by (namespace, pod) ({selected('graphpod_prefix_cache_tokens')})", "{{pod}} prefixes"),
            ),
        ),
    ),
)

_NO_SLEEP = "Empty if spec.engine.sleep is not set and no weights were replaced."
_CHANGE = "graphpod_sleep_transition_duration_seconds"
SLEEP = Section(
    "Sleep and new weights",
    (
        Panel(
            "Pods asleep",
            "1 while weights and KV cache are off the device.",
            Kind.Lines,
            Unit.Count,
            (Query(f"max by (namespace, pod) ({selected('graphpod_asleep')})", "{{pod}}"),),
            _NO_SLEEP,
            width=6,
        ),
        Panel(
            "Memory freed",
            "Bytes of the device that the latest sleep of each pod freed, as measured.",
            Kind.Lines,
            Unit.Bytes,
            (Query(f"max by (namespace, pod) ({selected('graphpod_sleep_freed_bytes')})", "{{pod}}"),),
            _NO_SLEEP,
            width=6,
        ),
        Panel(
            "Seconds of a change",
            "Mean time until weights had left (sleep), were back (wake), or were replaced and checked (reload).",
            Kind.Lines,
            Unit.Seconds,
            (
                Query(
                    f"sum by (transition) ({rate(f'{_CHANGE}_sum')})"
                    f" / sum by (transition) ({rate(f'{_CHANGE}_count')})",
                    "{{transition}}",
                ),
            ),
            "Empty while no pod falls asleep, wakes or gets new weights.",
            width=6,
        ),
        Panel(
            "Changes that failed",
            "Weights that could not leave, come back or be replaced; the pod's /warmup says why. Good: 0.",
            Kind.Lines,
            Unit.PerSecond,
            (Query(f"sum by (transition) ({rate('graphpod_sleep_failures_total')})", "{{transition}}"),),
            _NO_SLEEP,
            width=6,
        ),
    ),
)

BOARD = Board(
    "serving",
    "graphpod / Serving",
    "What clients get, against the objectives, and what holds them up.",
    OF_SERVICES,
    (OBJECTIVES, LATENCY, LOAD, HOST_CACHE, SLEEP),
    POD_MARKS,
)
