"""Spans of requests by OpenTelemetry: one of the server for each, below it queue, prefill and decode of each choice."""

import logging
import os
import time
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from graphpod_policy import Phase, __version__
from graphpod_runtime.front.metrics.exporter import HANDLERS
from graphpod_runtime.front.other_paths import served_path
from graphpod_runtime.front.refusals import CODE, PATH_SHOWN
from graphpod_runtime.front.request_id import ANSWER
from graphpod_runtime.front.requests.request_trace import MOST_CHOICES, ChoiceTrace, RequestTrace
from graphpod_runtime.front.status import Status as ServerStatus
from graphpod_runtime.front.tracing.settings import MILLION, TracingSettings
from graphpod_runtime.front.tracing.span_queue import Counted, SpanQueue
from graphpod_runtime.wire.messages import FinishReason

ROUTES = frozenset((*HANDLERS, "/openapi.json", "/invocations"))
NAMES = ("traceparent", "tracestate")
PROPAGATOR = TraceContextTextMapPropagator()
Attributes = dict[str, str | int | list[str]]


@dataclass(slots=True)
class TracedRequest:
    """A request whose span goes on. `offset` makes nanoseconds since 1970 of time.monotonic()."""

    span: Span
    trace: RequestTrace
    offset: int

    def at(self, monotonic: float) -> int:
        """Nanoseconds since 1970."""
        return int(monotonic * 1e9) + self.offset


class Tracer:
    """Makes and sends the spans of one server."""

    def __init__(self, settings: TracingSettings, status: ServerStatus, counted: Counted) -> None:
        # Each failed message would be a line, and its retries more; the queue logs when the state changes.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
        self._status = status
        self.queue = SpanQueue(OTLPSpanExporter(endpoint=settings.endpoint), counted)
        provider = TracerProvider(
            sampler=_sampler(settings.per_million), resource=_resource(status), shutdown_on_exit=False
        )
        provider.add_span_processor(self.queue)
        self._tracer = provider.get_tracer("graphpod")

    def begin(self, scope: MutableMapping[str, Any]) -> TracedRequest | None:
        """The span of a request, or None where it is not sampled. The request's headers name the trace afterwards."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        path, method = scope["path"], scope["method"]
        served = served_path(path)
        route = served if served in ROUTES else None
        span = self._tracer.start_span(
            f"{method} {route}" if route else method,
            PROPAGATOR.extract({name: headers[name] for name in NAMES if name in headers}),
            SpanKind.SERVER,
            {
                "http.request.method": method,
                "url.path": path[:PATH_SHOWN],
                "url.scheme": scope.get("scheme", "http"),
                **({"http.route": route} if route else {}),
            },
        )
        if not span.is_recording():
            return None
        own: dict[str, str] = {}
        PROPAGATOR.inject(own, set_span_in_context(span))
        kept = [(name, value) for name, value in scope["headers"] if name.decode("latin-1") not in NAMES]
        scope["headers"] = [*kept, *((name.encode(), value.encode()) for name, value in own.items())]
        return TracedRequest(span, RequestTrace(), time.time_ns() - time.monotonic_ns())

    def end(self, request: TracedRequest, scope: Mapping[str, Any], status: int | None, id: str | None) -> None:
        """The answer has ended: its HTTP `status`, None where none began, and its `x-request-id`."""
        trace, span = request.trace, request.span
        trace.over = True
        for index, choice in enumerate(trace.choices):
            self._phases(request, index, choice)
        span.set_attributes(self._attributes(trace, scope, status, id))
        failed = status is None or status >= 500 or FinishReason.Error in trace.finishes
        if failed:
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    def _attributes(
        self, trace: RequestTrace, scope: Mapping[str, Any], status: int | None, id: str | None
    ) -> Attributes:
        found: Attributes = {"gen_ai.request.model": self._status.config.model.name}
        if status is not None:
            found["http.response.status_code"] = status
        if id is not None:
            found["graphpod.request.id"] = id
        if (code := scope.get(CODE)) is not None:
            found["error.type"] = code
        if trace.choices:
            found["gen_ai.response.id"] = scope.get(ANSWER) or ""
            found["gen_ai.response.finish_reasons"] = [reason.value for reason in trace.finishes[:MOST_CHOICES]]
            found["gen_ai.usage.input_tokens"] = sum(choice.prompt_tokens for choice in trace.choices)
            found["gen_ai.usage.output_tokens"] = sum(choice.tokens for choice in trace.choices)
        return found

    def _phases(self, request: TracedRequest, index: int, choice: ChoiceTrace) -> None:
        """The spans of one choice; none for one without a token."""
        phases = choice.phases
        if phases is None:
            return
        common: Attributes = {"graphpod.choice": index}
        self._phase(request, "queue", phases.arrived, phases.admitted, common)
        passes = (phases.replayed, phases.eager)
        prefill = common | {"gen_ai.usage.input_tokens": choice.prompt_tokens, "graphpod.cached_tokens": choice.cached}
        self._phase(request, "prefill", phases.admitted, phases.first, prefill | self._graphs(Phase.Prefill, passes))
        decode = common | {"gen_ai.usage.output_tokens": choice.tokens}
        ended = max(phases.first, choice.ended or time.monotonic())
        self._phase(request, "decode", phases.first, ended, decode | self._graphs(Phase.Decode, choice.decoded))

    def _graphs(self, phase: Phase, passes: tuple[int, int] | None) -> Attributes:
        """How the passes of a phase ran: by the policy that works since the start, and how many fell back."""
        found: Attributes = {"graphpod.graph.policy": str(self._status.report["graph"][phase.value]["effective"])}
        if passes is not None:
            found["graphpod.passes.graph"], found["graphpod.passes.eager"] = passes
        return found

    def _phase(self, request: TracedRequest, name: str, began: float, ended: float, attributes: Attributes) -> None:
        parent = set_span_in_context(request.span)
        span = self._tracer.start_span(name, parent, attributes=attributes, start_time=request.at(began))
        span.end(request.at(ended))


def _sampler(per_million: int | None) -> Sampler | None:
    """Whoever asks for a trace, or against it, is followed; None is OpenTelemetry's choice by the environment."""
    return None if per_million is None else ParentBased(TraceIdRatioBased(per_million / MILLION))


def _resource(status: ServerStatus) -> Resource:
    """What the spans say of this server; the environment's OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win."""
    ours = {"service.name": status.config.model.name, "service.version": __version__}
    pod = {"k8s.pod.name": "POD_NAME", "k8s.namespace.name": "POD_NAMESPACE", "k8s.pod.uid": "POD_UID"}
    ours |= {name: value for name, variable in pod.items() if (value := os.environ.get(variable))}
    if status.pod_uid:
        ours["service.instance.id"] = status.pod_uid
    return Resource.create({**ours, **OTELResourceDetector().detect().attributes})
