"""The texts of librdkafka's errors."""

from __future__ import annotations

from confluent_kafka import KafkaError


def text_of(error: KafkaError | Exception) -> str:
    """Return what is wrong, in one sentence."""
    if isinstance(error, KafkaError):
        return error.str()
    inner = error.args[0] if error.args else error
    return inner.str() if isinstance(inner, KafkaError) else str(inner)
