"""Replace personal data and secrets with pseudonyms: equal values get the same pseudonym.

Needs the extra ``privacy``, as the detectors do.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from ragtrace.capture.privacy._detectors import DetectedValue, DetectorKind, find
from ragtrace.capture.privacy._digest import digest
from ragtrace.capture.privacy.policy import LONGEST_VALUE

MAX_TRACES = 16_384
"""Maximum number of remembered traces with personal data; beyond it, the least recently used one restarts."""
_UNMISTAKABLE = frozenset({DetectorKind.EMAIL, DetectorKind.IBAN, DetectorKind.IP, DetectorKind.SECRET})


def redact(text: str, limit: int, names: Pseudonyms, phone_regions: tuple[str, ...]) -> str:
    """Return the first ``limit`` characters with each detected value as a pseudonym such as ``<EMAIL_1>``."""
    pieces: list[str] = []
    end = 0
    for finding in find(text[: limit + LONGEST_VALUE], phone_regions):
        if finding.start >= limit:
            break
        pieces += (text[end : finding.start], names.of(finding))
        end = finding.end
    if not pieces:
        return text[:limit]
    pieces.append(text[end:limit])
    return "".join(pieces)


def is_identifying(identifier: str, is_opaque: bool, phone_regions: tuple[str, ...]) -> bool:
    """Return whether an id contains personal data. Digits in an opaque one are not a phone number."""
    found = find(identifier, () if is_opaque else phone_regions)
    return any(not is_opaque or finding.kind in _UNMISTAKABLE for finding in found)


class Pseudonyms:
    """The pseudonyms of one trace: numbers in order of appearance, or digests under a key.

    Numbers reveal nothing about the value, but each process assigns its own. In a trace across several
    processes, only digests under a shared key are the same everywhere.
    """

    __slots__ = ("_key", "_trace_id")

    def __init__(self, trace_id: int, key: bytes | None) -> None:
        self._trace_id = trace_id
        self._key = key

    def of(self, finding: DetectedValue) -> str:
        """Return the pseudonym of a value."""
        # The digest includes the trace id: otherwise a person could be followed across traces.
        value = digest(f"{self._trace_id:x} {finding.kind} {finding.value}", self._key)
        if self._key is not None:
            return f"<{finding.kind}_{value[:8]}>"
        return f"<{finding.kind}_{_number(self._trace_id, finding.kind, value)}>"


_numbers: OrderedDict[int, dict[tuple[DetectorKind, str], int]] = OrderedDict()
"""By trace: digests of the values, because redacted values are not kept."""
_lock = threading.Lock()  # the spans of a trace may end in several threads


def _number(trace_id: int, kind: DetectorKind, value: str) -> int:
    with _lock:
        given = _numbers.setdefault(trace_id, {})
        _numbers.move_to_end(trace_id)
        if len(_numbers) > MAX_TRACES:
            _numbers.popitem(last=False)
        of_this_kind = sum(known is kind for known, _ in given) if (kind, value) not in given else 0
        return given.setdefault((kind, value), of_this_kind + 1)
