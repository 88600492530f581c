"""The setting that turns content on, by instrumentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ragtrace import semconv
from ragtrace.traces.trace import Span

_GENAI: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY"
_BY_SCOPE: Final = (
    (semconv.SCOPE_CAPTURE, "`ragtrace.instrument(capture_content=True)`"),
    ("openinference.", "unset OPENINFERENCE_HIDE_INPUTS, OPENINFERENCE_HIDE_OUTPUTS and similar variables"),
    ("langfuse", "set LANGFUSE_OBSERVE_DECORATOR_IO_CAPTURE_ENABLED=true"),
    ("langsmith", "unset LANGSMITH_HIDE_INPUTS and LANGSMITH_HIDE_OUTPUTS"),
    ("pydantic-ai", "set `include_content=True` in pydantic-ai's instrumentation settings"),
    (
        "opentelemetry.instrumentation.openai_v2",
        f"set OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental and {_GENAI}",
    ),
    ("opentelemetry.instrumentation.genai", f"set {_GENAI}"),
    ("opentelemetry.util.genai", f"set {_GENAI}: EVENT_ONLY writes to log records, which are no spans"),
    ("opentelemetry.instrumentation.", "set TRACELOOP_TRACE_CONTENT=true"),
)
"""By prefix of the scope's name. All other OpenTelemetry scopes are OpenLLMetry's."""

_BY_SPAN: Final[tuple[tuple[Callable[[Span], bool], str], ...]] = (
    (lambda span: span.name.startswith("haystack."), "set HAYSTACK_CONTENT_TRACING_ENABLED=true"),
    (
        lambda span: semconv.VERCEL_OPERATION in span.attributes,
        "set `recordInputs: true, recordOutputs: true` in `experimental_telemetry`",
    ),
)
_OTHERS: Final = f"turn on content capture in the instrumentation, for OpenTelemetry's {_GENAI}"


def switches_of(spans: Iterable[Span]) -> str:
    """Return how to make the instrumentations of these spans record texts."""
    return "; ".join(dict.fromkeys(map(_switch_of, spans))) or _OTHERS


def _switch_of(span: Span) -> str:
    by_scope = (switch for start, switch in _BY_SCOPE if span.scope.name.startswith(start))
    by_span = (switch for writes, switch in _BY_SPAN if writes(span))
    return next(by_scope, None) or next(by_span, None) or _OTHERS
