"""Which shard decides about a trace, and what part of the whole a shard is."""

from __future__ import annotations

from typing import Final, NamedTuple

from ragtrace_collector.store.trace_key import trace_id_of


def shard_of(key: str, shards: int) -> int:
    """Return the shard that decides about a trace: the partition of its id.

    By FNV-1a, as the OpenTelemetry Collector's kafka exporter partitions traces (the default of its client,
    sarama), and librdkafka with ``partitioner: fnv1a_random``.
    """
    return _of_text(trace_id_of(key), shards)


def shard_of_session(session: str, *, tenant: str, shards: int) -> int:
    """Return the shard that keeps a session."""
    return _of_text(f"{tenant}\n{session}", shards)


def _of_text(text: str, shards: int) -> int:
    digest = _FNV_OFFSET
    for byte in text.encode("utf-8", "replace"):
        digest = (digest ^ byte) * _FNV_PRIME & _32_BITS
    return (digest if digest <= _31_BITS else _32_BITS + 1 - digest) % shards  # of the signed number's amount


_FNV_OFFSET: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193
_32_BITS: Final = 0xFFFFFFFF
_31_BITS: Final = 0x7FFFFFFF


FIRST: Final = 0
"""The number of the shard that has what there is once in a cluster."""


class Shard(NamedTuple):
    """One of the shards of a cluster; the only one, if a file is the store."""

    number: int = FIRST
    of: int = 1

    @property
    def is_first(self) -> bool:
        """Whether it watches what there is once in a cluster: the judge, and the objectives."""
        return self.number == FIRST

    def share(self, total: int) -> int:
        """Return its part of a number; the parts of all shards add up to it."""
        return total // self.of + (self.number < total % self.of)

    def guarantee(self, least: int) -> int:
        """Return what it must do so that all shards together do the least."""
        return -(-least // self.of)


WHOLE: Final = Shard()
"""All that there is."""
