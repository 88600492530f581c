"""The envelope of a request: its resources and scopes, with each span as raw bytes.

Copying and reserializing parsed spans costs five times as much as parsing, so kept spans are cut from the
request's bytes. Protobuf does the cutting: a message has the same wire format as bytes, and a schema that
declares it as ``bytes`` leaves it unparsed.
"""

from __future__ import annotations

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
