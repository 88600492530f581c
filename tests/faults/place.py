"""Where a try takes place: a folder, and the store of the collectors there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias
from uuid import uuid4

from tests.cluster.members import create_topics
from tests.cluster.scene import Broker

__all__ = ["SESSION_S", "SHARDS", "FilePlace", "KafkaPlace", "Place", "PlaceAt"]

SHARDS: Final = 2
SESSION_S: Final = 6
"""How long a member may be silent before others get its shards: the least that a broker allows."""
_FIRST: Final = "first"


class Place(Protocol):
    """A folder of a try, with what its collectors keep their work in."""

    @property
    def folder(self) -> Path:
        """Where all files of the try are."""
        ...

    def store(self, member: str = ...) -> Mapping[str, Any]:
        """Return the section ``store`` of a collector's configuration."""
        ...

    def reading(self) -> Mapping[str, Any]:
        """Return the section with which its ledger is read."""
        ...

    def files(self) -> Sequence[Path]:
        """Return the SQLite files that the collector has open, or will have."""
        ...

    def close(self) -> None:
        """Give back what the try leaves."""
        ...


PlaceAt: TypeAlias = Callable[[Path], Place]
"""Makes a place of a folder."""


@dataclass(frozen=True, slots=True)
class FilePlace:
    """The store is a SQLite file."""

    folder: Path

    def store(self, member: str = _FIRST) -> Mapping[str, Any]:
        """Name the file, whoever asks."""
        return {"path": str(self.folder / "store.db")}

    def reading(self) -> Mapping[str, Any]:
        """Name the same file."""
        return self.store()

    def files(self) -> Sequence[Path]:
        """Return the one."""
        return (self.folder / "store.db",)

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPlace:
    """The store is in topics of its own; the SQLite files are copies of it."""

    folder: Path
    broker: Broker
    prefix: str

    @classmethod
    def at(cls, broker: Broker, folder: Path) -> KafkaPlace:
        """Create the topics of a cluster that nobody else uses."""
        prefix = f"try-{uuid4().hex}"
        create_topics(broker.kafka, prefix=prefix, partitions=SHARDS)
        return cls(folder=folder, broker=broker, prefix=prefix)

    @property
    def shards(self) -> Path:
        """The folder of the copies."""
        return self.folder / "shards"

    @property
    def state(self) -> str:
        """The topic that the copies are of."""
        return f"{self.prefix}.state"

    def store(self, member: str = _FIRST) -> Mapping[str, Any]:
        """Return the section of a member: one that starts again under its name has its shards at once."""
        return {"path": str(self.shards), "kafka": {**self._cluster(), "group_instance_id": member}}

    def reading(self) -> Mapping[str, Any]:
        """Return the section of a reader, whose copies are elsewhere."""
        return {"path": str(self.folder / "read"), "kafka": self._cluster()}

    def files(self) -> Sequence[Path]:
        """Return the copies of the only member."""
        return [self.shards / "process-0" / f"shard-{number}.db" for number in range(SHARDS)]

    def close(self) -> None:
        """Delete the topics."""
        self.broker.kafka.delete(f"{self.prefix}.spans", self.state, f"{self.prefix}.budget")

    def _cluster(self) -> Mapping[str, Any]:
        return {
            "brokers": self.broker.kafka.broker,
            "prefix": self.prefix,
            "session_timeout": f"{SESSION_S}s",
        }
