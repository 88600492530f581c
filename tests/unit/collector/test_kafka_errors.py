"""What Kafka's client says is told once, and in one sentence."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from ragtrace_collector.kafka.admin import Admin
from ragtrace_collector.kafka.errors import text_of

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


AWAY, DENIED = KafkaError(KafkaError._TIMED_OUT, "timed out"), KafkaError(KafkaError._AUTHENTICATION, "no")
UNAUTHORIZED = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "not this group")


@pytest.mark.parametrize(
    ("told", "answer", "reason"),
    [
        ((), AWAY, "do not answer: timed out"),
        ((KafkaError(KafkaError._TRANSPORT, "refused"),), AWAY, "do not answer: refused"),
        ((DENIED, KafkaError(KafkaError._ALL_BROKERS_DOWN, "all")), AWAY, "refuse the credentials: no"),
        ((KafkaError(KafkaError._TRANSPORT, "earlier"),), UNAUTHORIZED, "refuse: not this group"),
    ],
)
def test_an_answer_that_does_not_come_has_the_reason_that_the_connections_had(
    told: tuple[KafkaError, ...], answer: KafkaError, reason: str
) -> None:
    admin = Admin({})  # without brokers, no connection says anything else
    for error in told:
        admin.last_error.note(error)
    assert admin.reason(KafkaException(answer)) == reason
