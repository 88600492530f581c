"""Guard the parsers: refuse requests of very many parts, and repair strings that are not UTF-8."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

MAX_PARTS: Final = 500_000
"""Resources, scopes, spans, attributes, events and links in one request; in JSON, objects and arrays."""

_Fields = Mapping[int, "_Fields | None"]
_RESOURCE: Final[_Fields] = {1: None}
_SCOPE: Final[_Fields] = {3: None}
_SPAN: Final[_Fields] = {9: None, 11: None, 13: None}
_REQUEST: Final[_Fields] = {1: {1: _RESOURCE, 2: {1: _SCOPE, 2: _SPAN}}}
"""The numbers of the counted fields, with the counted fields inside them."""

_LOGS: Final[_Fields] = {1: {1: _RESOURCE, 2: {1: _SCOPE, 2: {6: None}}}}

_LARGE_BYTES: Final = 4 << 20
_MAX_FIELDS: Final = 2_000_000
"""The limit of scanned fields of any kind: far more than a large request of usual spans has."""
_LENGTH_DELIMITED: Final = 2
_LAST_OF_ONE_BYTE: Final = 127
_FIXED_BYTES: Final = {1: 8, 5: 4}


def is_flood_of_json(data: bytes) -> bool:
    """Return whether a JSON body holds too many parts, before parsing it."""
    return data.count(b"{") + data.count(b"[") > MAX_PARTS


def is_flood_on_the_wire(data: bytes) -> bool:
    """Return whether a large protobuf body holds too many parts, before parsing it.

    This is slower than parsing and counting, so small bodies are skipped: their memory use is acceptable.
    """
    return _is_flood(data, _REQUEST)


def is_flood_of_logs(data: bytes) -> bool:
    """Return whether a large protobuf body of a logs request holds too many parts, before parsing it."""
    return _is_flood(data, _LOGS)


def _is_flood(data: bytes, fields: _Fields) -> bool:
    if len(data) < _LARGE_BYTES:
        return False
    try:
        return _walk(data, fields)
    except (IndexError, ValueError):  # cut off, or not protobuf: the parser reports it
        return False


def is_flood(request: ExportTraceServiceRequest) -> bool:
    """Return whether a parsed request holds too many parts."""
    number = 0
    for more in _parts(request):
        number += more
        if number > MAX_PARTS:
            return True
    return False


def _parts(request: ExportTraceServiceRequest) -> Iterator[int]:
    yield len(request.resource_spans)
    for resource_spans in request.resource_spans:
        yield len(resource_spans.resource.attributes) + len(resource_spans.scope_spans)
        for scope_spans in resource_spans.scope_spans:
            yield len(scope_spans.scope.attributes) + len(scope_spans.spans)
            for span in scope_spans.spans:
                yield len(span.attributes) + len(span.events) + len(span.links)


def _walk(data: bytes, request: _Fields) -> bool:
    """Count parts by their tags, up to the limit."""
    parts = fields_seen = 0
    waiting: list[tuple[int, int, _Fields]] = [(0, len(data), request)]
    while waiting:
        position, end, fields = waiting.pop()
        while position < end:
            fields_seen += 1
            if parts > MAX_PARTS or fields_seen > _MAX_FIELDS:
                return True
            tag, position = data[position], position + 1  # mostly one byte: a call for each is expensive
            if tag > _LAST_OF_ONE_BYTE:
                tag, position = _varint(data, position - 1)
            field, wire_type = tag >> 3, tag & 7
            if wire_type == _LENGTH_DELIMITED:
                length, position = data[position], position + 1
                if length > _LAST_OF_ONE_BYTE:
                    length, position = _varint(data, position - 1)
                if field in fields:
                    parts += 1
                    if inside := fields[field]:
                        waiting.append((position, min(position + length, end), inside))
                position += length
            elif wire_type == 0:
                _, position = _varint(data, position)
            else:  # a group has no length: its content is counted as its sibling
                position += _FIXED_BYTES.get(wire_type, 0)
    return False


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte <= _LAST_OF_ONE_BYTE:
            return value, position
    raise ValueError("a number of more than ten bytes")


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
