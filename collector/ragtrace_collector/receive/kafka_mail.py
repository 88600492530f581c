"""Mail between shards on its way out: messages in the topic of spans, which the shards read anyway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError

from ragtrace.errors import CodecError, SendRejected, SendRetryable
from ragtrace_collector.deliver.mail import decode_mail
from ragtrace_collector.receive.kafka_client import TopicMessage
from ragtrace_collector.receive.kafka_producers import SpanMessage, SpanProducer
from ragtrace_collector.store.port import MAIL

MAIL_HEADER: Final = "ragtrace.mail"
"""Marks a message that holds mail, not spans."""
_KEY: Final = "ragtrace.mail"
_MOST_BYTES: Final = 512 << 10
"""Of a message, unless one mail is larger: brokers take one megabyte by default."""
_TOO_LARGE: Final = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE).str()


def is_mail(message: TopicMessage) -> bool:
    """Say whether a message holds mail."""
    return any(name == MAIL_HEADER for name, _ in message.headers)


class MailSink:
    """Writes mail into the partitions of the shards that get it, to each in order. This is a ``SpanSink``."""

    def __init__(self, producer: Callable[[], SpanProducer | None]) -> None:
        self._producer = producer

    @property
    def name(self) -> str:
        """The sink's name."""
        return MAIL

    async def send(self, request: bytes) -> None:
        """Write mail; on return the brokers have it.

        Raises:
            SendRetryable: they do not take it now. Some shards may have theirs.
            SendRejected: a mail is larger than they allow, or this is none.
        """
        try:
            mail = decode_mail(request)
        except CodecError as exc:
            raise SendRejected(str(exc)) from exc
        producer = self._producer()
        if producer is None:
            raise SendRetryable("no broker has said yet how many shards there are")
        lines: dict[int, list[bytes]] = {}
        for each, line in mail:
            lines.setdefault(each.to, []).append(line)
        troubles = await _send_to_all(producer, lines)
        if _TOO_LARGE in troubles:
            raise SendRejected(
                f"the brokers refuse it: {_TOO_LARGE}: `max.message.bytes` of the topic says more"
            )
        if troubles:
            raise SendRetryable(f"the brokers did not take it: {troubles[0]}")

    async def aclose(self) -> None:
        """Do nothing: the producer belongs to the process."""


async def _send_to_all(producer: SpanProducer, lines: Mapping[int, Sequence[bytes]]) -> Sequence[str]:
    troubles = await asyncio.gather(*(_send_to(producer, shard, each) for shard, each in lines.items()))
    return [trouble for trouble in troubles if trouble]


async def _send_to(producer: SpanProducer, shard: int, lines: Sequence[bytes]) -> str | None:
    """Write to one shard, a message after the other: none overtakes one that failed."""
    for value in _messages(lines):
        written: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        producer.write([SpanMessage(_KEY, value, [(MAIL_HEADER, b"1")], partition=shard)], written)
        if trouble := await written:
            return trouble
    return None


def _messages(lines: Sequence[bytes]) -> Iterator[bytes]:
    waiting: list[bytes] = []
    for line in lines:
        if waiting and sum(map(len, waiting)) + len(line) > _MOST_BYTES:
            yield b"".join(waiting)
            waiting = []
        waiting.append(line)
    yield b"".join(waiting)
