"""Apply the content policy to spans of other libraries' instrumentors, before any text reaches a span.

It wraps the provider, not an exporter, so it covers all exporters of the application.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
)
from opentelemetry.util.types import Attributes, AttributeValue

from ragtrace import semconv
from ragtrace.capture._guard import guarded
from ragtrace.capture.libraries.langchain_runs import WrappedTracer
from ragtrace.capture.privacy.policy import MESSAGES, ContentFilter, ContentPolicy
from ragtrace.capture.values.plain import compact_json
from ragtrace.model import Part

_NAMES = frozenset(
    {"address", "finish_reason", "finish_reasons", "id", "kind", "mime_type"}
    | {"model", "model_name", "name", "provider", "role", "system", "type"}
)
"""Key suffixes of values that are not text: long digits in them are not phone numbers."""


class PolicedProvider(TracerProvider):
    """Returns tracers whose spans follow the policy; its modes are ``on`` and ``redacted``."""

    def __init__(self, provider: TracerProvider, policy: ContentPolicy) -> None:
        self._provider = provider
        self._policy = policy

    def get_tracer(self, *args: Any, **kwargs: Any) -> Tracer:
        """Return a tracer of the provider, wrapped."""
        return _PolicedTracer(self._provider.get_tracer(*args, **kwargs), self._policy)


class _PolicedTracer(WrappedTracer):
    def __init__(self, tracer: Tracer, policy: ContentPolicy) -> None:
        super().__init__(tracer)
        self._policy = policy

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes = None,
        *args: Any,
        **kwargs: Any,
    ) -> Span:
        # Attributes are set after the start: their pseudonyms depend on the trace id.
        span = self._tracer.start_span(name, context, kind, None, *args, **kwargs)
        if not span.is_recording():
            return span
        if _police(span, self._policy) is None:
            return NonRecordingSpan(span.get_span_context())
        if attributes:
            span.set_attributes(attributes)
        return span


@guarded
def _police(span: Any, policy: ContentPolicy) -> bool:
    """Wrap this span's setters with the policy; `record_exception` and `__exit__` call them."""
    content_filter = ContentFilter(policy, span.get_span_context().trace_id)
    set_attributes, add_event, set_status = span.set_attributes, span.add_event, span.set_status

    @guarded
    def set_policed(attributes: Mapping[str, AttributeValue]) -> None:
        set_attributes({**_policed(attributes, content_filter), **content_filter.marks()})

    def set_one_policed(key: str, value: AttributeValue) -> None:
        set_policed({key: value})

    @guarded
    def add_policed(name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        add_event(name, _policed(attributes or {}, content_filter), timestamp)

    @guarded
    def set_policed_status(status: Status | StatusCode, description: str | None = None) -> None:
        code = status.status_code if isinstance(status, Status) else status
        said = status.description if isinstance(status, Status) else description
        set_status(Status(code, _text(said, content_filter) if code is StatusCode.ERROR else None))

    span.set_attributes, span.set_attribute = set_policed, set_one_policed
    span.add_event, span.set_status = add_policed, set_policed_status
    return True


def _policed(
    attributes: Mapping[str, AttributeValue], content_filter: ContentFilter
) -> dict[str, AttributeValue]:
    policed = {key: _value(key, value, content_filter) for key, value in attributes.items()}
    return {key: value for key, value in policed.items() if value is not None}


@guarded
def _value(key: str, value: AttributeValue, content_filter: ContentFilter) -> AttributeValue | None:
    if isinstance(value, str):
        return _string(key, value, content_filter)
    if isinstance(value, Sequence):
        policed = [_string(key, each, content_filter) if isinstance(each, str) else each for each in value]
        return [each for each in policed if each is not None]
    return value


def _string(key: str, value: str, content_filter: ContentFilter) -> str | None:
    if value == semconv.OI_REDACTED:
        return value
    if key.rpartition(".")[2] in _NAMES or key.endswith("_id"):
        return content_filter.policy.identifier(value)
    return _text_or_json(value, content_filter)


def _text_or_json(text: str, content_filter: ContentFilter) -> str | None:
    if text[:1] in {"{", "["}:
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            pass  # not JSON: plain text
        else:
            return compact_json(_leaves(document, content_filter))
    return _text(text, content_filter)


def _leaves(node: object, content_filter: ContentFilter) -> object:
    """Apply the policy to the strings of a document, and to numbers as long as a card's."""
    if isinstance(node, dict):
        return {
            str(_text(key, content_filter)): _leaves(value, content_filter) for key, value in node.items()
        }
    if isinstance(node, list):
        return [_leaves(value, content_filter) for value in node]
    is_long = isinstance(node, int) and abs(node) >= content_filter.longest_number
    if isinstance(node, str) or is_long:
        text = _text(node, content_filter)
        return node if is_long and text == str(node) else text
    return node


def _text(value: object, content_filter: ContentFilter) -> str | None:
    return content_filter.text(value, Part.CONTEXT, content_filter.policy.max_messages_bytes, MESSAGES)
