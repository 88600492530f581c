"""What Kafka's client says is told once, and in one sentence."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from ragtrace_collector.receive.kafka_client import text_of

REFUSED = "127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KafkaError(KafkaError._TRANSPORT, f"{REFUSED} (after 3ms in state CONNECT)"), REFUSED),
        (KafkaError(KafkaError._TRANSPORT, f"{REFUSED} (after 2870ms in state CONNECT)"), REFUSED),
        (KafkaException(KafkaError(KafkaError._TRANSPORT, "gone")), "gone"),
        (ValueError("no number"), "no number"),
        (BufferError(), "BufferError"),
    ],
)
def test_one_trouble_has_one_text_however_long_it_took(error: KafkaError | Exception, text: str) -> None:
    assert text_of(error) == text
