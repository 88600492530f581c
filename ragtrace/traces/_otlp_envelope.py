"""The envelope of a request: its resources and scopes, with each span as raw bytes.

Copying and reserializing parsed spans costs five times as much as parsing, so kept spans are cut from the
request's bytes. Protobuf does the cutting: a message has the same wire format as bytes, and a schema that
declares it as ``bytes`` leaves it unparsed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, cast

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import Message

if TYPE_CHECKING:
    from google.protobuf.internal.containers import (
        RepeatedCompositeFieldContainer,
        RepeatedScalarFieldContainer,
    )

    class EnvelopeOfScope(Message):
        """``ScopeSpans`` with members as bytes."""

        scope: RepeatedScalarFieldContainer[bytes]
        """In pieces, as protobuf allows."""
        spans: RepeatedScalarFieldContainer[bytes]
        schema_url: bytes

    class EnvelopeOfResource(Message):
        """``ResourceSpans`` of such scopes."""

        resource: RepeatedScalarFieldContainer[bytes]
        """In pieces, as protobuf allows."""
        scope_spans: RepeatedCompositeFieldContainer[EnvelopeOfScope]
        schema_url: bytes

    class Envelope(Message):
        """``ExportTraceServiceRequest`` of such resources."""

        resource_spans: RepeatedCompositeFieldContainer[EnvelopeOfResource]


def read_envelope(body: bytes) -> Envelope:
    """Parse the envelope of a valid request."""
    return cast("Envelope", _REQUEST.FromString(body))


def cut_traces(body: bytes, *, wanted: Callable[[str, int], bool]) -> tuple[bytes, int]:
    """Cut the spans of unwanted traces out of a request; return the rest, and how many were cut.

    Of each span only the ids are read, at its beginning, where encoders write them. A span without valid ids
    there stays. ``wanted`` is called once with each trace id and its number of spans.

    Raises:
        DecodeError: the envelope cannot be parsed.
    """
    envelope = read_envelope(body)
    scopes = [scope for resource in envelope.resource_spans for scope in resource.scope_spans]
    trace_ids = [_trace_ids(scope.spans) for scope in scopes]
    numbers = Counter(chain.from_iterable(trace_ids))
    unread = numbers.pop(_UNREAD, 0)
    unwanted = {trace_id for trace_id, number in numbers.items() if not wanted(trace_id.hex(), number)}
    if not unwanted:
        return body, 0
    if not unread and len(unwanted) == len(numbers):
        return b"", numbers.total()
    for scope, of_scope in zip(scopes, trace_ids, strict=True):
        kept = [
            span for span, trace_id in zip(scope.spans, of_scope, strict=True) if trace_id not in unwanted
        ]
        del scope.spans[:]
        scope.spans.extend(kept)
    return envelope.SerializeToString(), sum(numbers[trace_id] for trace_id in unwanted)


def _trace_ids(spans: Iterable[bytes]) -> Sequence[bytes]:
    heads = [span[:_HEAD_BYTES] for span in spans]
    together = b"".join(heads)
    if _are_tagged(together, len(heads)) and bytes(8) not in together:  # no id is zero
        return [head[_TRACE_ID] for head in heads]
    return [head[_TRACE_ID] if _has_ids(head) else _UNREAD for head in heads]


def _are_tagged(heads: bytes, number: int) -> bool:
    """Return whether each head is a trace id and a span id of the right lengths."""
    return len(heads) == number * _HEAD_BYTES and all(
        heads[place::_HEAD_BYTES] == bytes([byte]) * number for place, byte in _TAGS
    )


def _has_ids(head: bytes) -> bool:
    return _are_tagged(head, 1) and any(head[_TRACE_ID]) and any(head[_SPAN_ID])


_UNREAD: Final = b""
_HEAD_BYTES: Final = 28
_TAGS: Final = ((0, 0x0A), (1, 16), (18, 0x12), (19, 8))
"""Fields 1 and 2, ``trace_id`` and ``span_id``, with their lengths: ``Span`` in OTLP's ``trace.proto``."""
_TRACE_ID: Final = slice(2, 18)
_SPAN_ID: Final = slice(20, 28)


def new_envelope() -> Envelope:
    """Return an empty envelope."""
    return cast("Envelope", _REQUEST())


_PACKAGE: Final = "ragtrace.envelope"
_BYTES: Final = FieldDescriptorProto.TYPE_BYTES
_MESSAGE: Final = FieldDescriptorProto.TYPE_MESSAGE
_ONE: Final = FieldDescriptorProto.LABEL_OPTIONAL
_MANY: Final = FieldDescriptorProto.LABEL_REPEATED


def _bytes(name: str, number: int, label: FieldDescriptorProto.Label.ValueType) -> FieldDescriptorProto:
    return FieldDescriptorProto(name=name, number=number, label=label, type=_BYTES)


def _messages(name: str, number: int, of: str) -> FieldDescriptorProto:
    return FieldDescriptorProto(
        name=name, number=number, label=_MANY, type=_MESSAGE, type_name=f".{_PACKAGE}.{of}"
    )


def _request_class() -> type[Message]:
    pool = descriptor_pool.DescriptorPool()
    schema_url = _bytes("schema_url", 3, _ONE)
    scope = [_bytes("scope", 1, _MANY), _bytes("spans", 2, _MANY), schema_url]
    resource = [_bytes("resource", 1, _MANY), _messages("scope_spans", 2, "ScopeSpans"), schema_url]
    request = [_messages("resource_spans", 1, "ResourceSpans")]
    fields = {"ScopeSpans": scope, "ResourceSpans": resource, "Request": request}
    messages = [DescriptorProto(name=name, field=field) for name, field in fields.items()]
    pool.Add(
        FileDescriptorProto(
            name="ragtrace/envelope.proto", package=_PACKAGE, syntax="proto3", message_type=messages
        )
    )
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Request"))


_REQUEST: Final = _request_class()
