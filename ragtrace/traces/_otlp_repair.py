"""Repair protobuf requests with strings that are not UTF-8, so that one bad string costs no other span.

Parsers refuse a whole message for one such string. A schema with ``bytes`` in place of OTLP's ``string``
parses it, and the repaired message can be written again.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace.traces._otlp_size import MAX_PARTS


def repaired_text(body: bytes, of: type[Message] = ExportTraceServiceRequest) -> tuple[bytes, int] | None:
    """Return the request with U+FFFD for invalid UTF-8, and the number of changed strings.

    ``None`` if this schema cannot parse it either, or if it has too many parts to check.
    """
    request_class, text_fields = _with_texts_as_bytes(of.DESCRIPTOR.full_name)
    try:
        request = request_class.FromString(body)
    except DecodeError:
        return None
    waiting, seen, repaired = [request], 0, 0
    while waiting:
        message = waiting.pop()
        seen += 1
        if seen + len(waiting) > MAX_PARTS:
            return None
        for field, value in message.ListFields():
            if field.message_type is not None:
                waiting.extend((value,) if isinstance(value, Message) else value)
            elif field.full_name in text_fields:
                repaired += _repair(message, field.name, value)
    return request.SerializeToString(), repaired


def _repair(message: Message, field: str, value: Any) -> int:
    is_one = isinstance(value, bytes)
    texts: list[bytes] = [value] if is_one else list(value)
    repaired = [_repaired(text) for text in texts]
    changed = sum(before != after for before, after in zip(texts, repaired, strict=True))
    if changed and is_one:
        setattr(message, field, repaired[0])
    elif changed:
        value[:] = repaired
    return changed


def _repaired(text: bytes) -> bytes:
    return text if text.isascii() else text.decode("utf-8", "replace").encode()


def _files(file: FileDescriptor) -> Iterator[FileDescriptor]:
    for needed in file.dependencies:
        yield from _files(needed)
    yield file


def _texts_as_bytes(message: DescriptorProto, name: str, texts: set[str]) -> None:
    for field in message.field:
        if field.type == FieldDescriptorProto.TYPE_STRING:
            field.type = FieldDescriptorProto.TYPE_BYTES
            texts.add(f"{name}.{field.name}")
    for nested in message.nested_type:
        _texts_as_bytes(nested, f"{name}.{nested.name}", texts)


@cache
def _with_texts_as_bytes(name: str) -> tuple[type[Message], frozenset[str]]:
    pool, texts = descriptor_pool.DescriptorPool(), set[str]()
    service = descriptor_pool.Default().FindMessageTypeByName(name).file
    for file in {each.name: each for each in _files(service)}.values():
        copy = FileDescriptorProto()
        file.CopyToProto(copy)
        copy.ClearField("service")
        for message in copy.message_type:
            _texts_as_bytes(message, f"{copy.package}.{message.name}", texts)
        pool.Add(copy)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name)), frozenset(texts)
