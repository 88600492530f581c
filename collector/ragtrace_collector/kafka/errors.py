"""The texts of librdkafka's errors."""

from __future__ import annotations

import re
from typing import Final

from confluent_kafka import KafkaError

_WHEN: Final = re.compile(r" \(after \d+ms in state \w+\)")
"""It differs each time, so that one trouble would be told again and again."""


def text_of(error: KafkaError | Exception) -> str:
    """Return what is wrong, in one sentence."""
    inner = error.args[0] if isinstance(error, Exception) and error.args else error
    return _WHEN.sub("", inner.str() if isinstance(inner, KafkaError) else str(inner) or type(error).__name__)
