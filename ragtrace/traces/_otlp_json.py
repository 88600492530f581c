"""OTLP's JSON: protobuf's JSON mapping with ids in hex, keys in lowerCamelCase only, enums as integers."""

from __future__ import annotations

import base64
import json
import re
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragtrace.errors import CodecError
from ragtrace.traces.text import scrub_surrogates

MessageT = TypeVar("MessageT", bound=Message)

_MAX_DEPTH = 200
_JSON_IDS = frozenset({"traceId", "spanId", "parentSpanId"})
_JSON_KEY = re.compile(r"[a-z][A-Za-z0-9]*")
"""OTLP allows only lowerCamelCase keys; ``json_format`` would also accept snake_case and extensions."""
_JSON_PATH = re.compile(r"Failed to parse (\w+) field: ")


def from_json(data: bytes | str, into: MessageT) -> tuple[MessageT, int]:
    """Parse one JSON object into an empty message; return it with the number of repaired strings.

    Those were not valid Unicode.

    Raises CodecError, whose message names the place and never quotes values.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8", "replace")
        tree = json.loads(text)
        if not isinstance(tree, dict):
            raise CodecError(f"not OTLP JSON: expected an object, got {type(tree).__name__}")
        is_replaced = isinstance(data, bytes) and "\ufffd" in text and text.encode() != data
        rewritten = _Rewritten(replaced=is_replaced)
        written = rewritten.tree(tree)
        request = json_format.ParseDict(written, into, ignore_unknown_fields=True)
    except json_format.ParseError as exc:
        path = ".".join(_JSON_PATH.findall(str(exc))[:8])
        raise CodecError(f"not OTLP JSON: a wrong value at {path!r}") from exc
    except RecursionError as exc:
        raise CodecError("not OTLP JSON: nested too deeply") from exc
    except OverflowError as exc:  # an integer of hundreds of digits for a double
        raise CodecError("not OTLP JSON: a number is too large") from exc
    except (ValueError, TypeError, AttributeError) as exc:
        raise CodecError(f"not OTLP JSON: {exc}") from exc
    return request, rewritten.repaired


def to_json(request: ExportTraceServiceRequest) -> str:
    """Write one line of JSON."""
    tree = json_format.MessageToDict(request, use_integers_for_enums=True)
    return json.dumps(_otlp_tree(tree), ensure_ascii=False, separators=(",", ":"))


class _Rewritten:
    """OTLP's JSON converted to protobuf's: ids in base64, unknown keys dropped, valid text."""

    def __init__(self, *, replaced: bool) -> None:
        self.repaired = 0
        """Number of invalid strings."""
        self._replaced = replaced
        """Whether U+FFFD replaces bytes that were not UTF-8."""

    def tree(self, node: Any, depth: int = 0) -> Any:
        if depth > _MAX_DEPTH:
            raise CodecError(f"not OTLP JSON: nested deeper than {_MAX_DEPTH} levels")
        if isinstance(node, str):
            return self._text(node)
        if isinstance(node, list):
            return [self.tree(item, depth + 1) for item in node]
        if isinstance(node, dict):
            return {
                key: _hex_to_base64(value) if key in _JSON_IDS else self.tree(value, depth + 1)
                for key, value in node.items()
                if _JSON_KEY.fullmatch(key)
            }
        return node

    def _text(self, text: str) -> str:
        scrubbed = scrub_surrogates(text)
        self.repaired += scrubbed != text or (self._replaced and "\ufffd" in text)
        return scrubbed


def _otlp_tree(node: Any) -> Any:
    """Convert protobuf's JSON to OTLP's: ids in hex."""
    if isinstance(node, list):
        return [_otlp_tree(item) for item in node]
    if isinstance(node, dict):
        return {
            key: base64.b64decode(value).hex() if key in _JSON_IDS else _otlp_tree(value)
            for key, value in node.items()
        }
    return node


def _hex_to_base64(value: Any) -> str | None:
    """Return an id in protobuf's JSON; what is no id becomes empty: only its span is rejected then."""
    try:
        return base64.b64encode(bytes.fromhex(value)).decode()
    except (ValueError, TypeError):
        return None
