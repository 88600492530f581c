"""Copies of all shards of a cluster, for whoever reads: they follow the topic of state, and own nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from ragtrace.errors import ConfigError, RagtraceError, ReadUnavailable
from ragtrace_collector.config.kafka import KafkaStoreConfig
from ragtrace_collector.store.changelog.kafka import KafkaLogReader
from ragtrace_collector.store.changelog.store import follow
from ragtrace_collector.store.cluster_topics import ClusterTopics
from ragtrace_collector.telemetry.logs import event

log = logging.getLogger("ragtrace.collector")

_AT_ONCE: Final = 8
_PAUSE_S: Final = 2.0


class ShardReplicas:
    """Copies of the shards in a private folder. Several processes may bring the same ones up to date."""

    def __init__(self, config: KafkaStoreConfig, folder: Path) -> None:
        """Connect when it is used."""
        self._config = config
        self._folder = folder
        self._topics = ClusterTopics(config)
        self._readers: dict[int, KafkaLogReader] = {}
        self._read_to: dict[int, int] = {}

    def refresh(self) -> Mapping[int, Path]:
        """Bring all copies up to date, and return them by the number of their shard. Blocks.

        Raises:
            ConfigError: the folder cannot be used, or a newer ragtrace wrote a log.
            ReadUnavailable: the brokers do not answer, or there is no such cluster.
            ReadError: a log is damaged.
        """
        (shards,) = self._topics.partitions(self._config.state)
        ends = self._topics.ends(self._config.state, shards)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise ConfigError(
                f"`store.path`: the folder {str(self._folder)!r} cannot be used: {exc}: name another"
            ) from exc
        # to ask for all ends takes milliseconds, to read a log that has nothing new a tenth of a second
        behind = {number: end for number, end in ends.items() if self._read_to.get(number) != end}
        if behind:
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="ragtrace-replicas") as threads:
                for _ in threads.map(self._follow, *zip(*behind.items(), strict=True)):
                    pass
        return {number: self._file(number) for number in range(shards)}

    def _follow(self, number: int, end: int) -> None:
        reader = self._readers.get(number)
        if reader is None:
            reader = self._readers[number] = KafkaLogReader(
                self._config.client_settings(), topic=self._config.state, partition=number
            )
        follow(self._file(number), reader)
        self._read_to[number] = end

    def _file(self, number: int) -> Path:
        return self._folder / f"shard-{number}.db"


@asynccontextmanager
async def followed(
    replicas: ShardReplicas, *, waits: bool
) -> AsyncIterator[Callable[[], Mapping[int, Path]]]:
    """Follow the shards while the block runs. With ``waits``, brokers that are away are waited for.

    Raises:
        ConfigError: the folder cannot be used, or a newer ragtrace wrote a log.
        ReadError: they cannot be made, without ``waits``.
    """
    following = _Followed(replicas)
    if not waits:
        await following.refresh()
    async with following.running():
        yield following.files


class _Followed:
    """Brings copies up to date in the background, while somebody reads them."""

    def __init__(self, replicas: ShardReplicas, *, pause_s: float = _PAUSE_S) -> None:
        self._replicas = replicas
        self._pause_s = pause_s
        self._files: Mapping[int, Path] = {}
        self._trouble: RagtraceError = ReadUnavailable(
            "the copies of the shards are being made: wait a moment"
        )
        self._told: str | None = None

    def files(self) -> Mapping[int, Path]:
        """Return the copies by number, as they were brought up to date last.

        Raises:
            ReadError: there are none yet; says why.
        """
        if not self._files:
            raise ReadUnavailable(str(self._trouble)) from self._trouble
        return self._files

    async def refresh(self) -> None:
        """Bring them up to date once.

        Raises:
            ConfigError: the folder cannot be used, or a newer ragtrace wrote a log.
            ReadError: they cannot be made.
        """
        self._files = await asyncio.to_thread(self._replicas.refresh)
        self._told = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Go on until the block ends. What cannot be read is logged once, and tried again."""
        following = asyncio.create_task(self._run(), name="replicas")
        try:
            yield
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following

    async def _run(self) -> None:
        while True:
            try:
                await self.refresh()
            except RagtraceError as exc:
                self._note(exc)
            await asyncio.sleep(self._pause_s)

    def _note(self, trouble: RagtraceError) -> None:
        self._trouble = trouble
        if str(trouble) != self._told:
            self._told = str(trouble)
            log.warning(
                "the copies of the shards stay as they are: %s", trouble, extra=event("replicas_stale")
            )
