"""What `ragtrace doctor` looks at: each check reports what it found, and what to do about a problem."""

from __future__ import annotations

import fcntl
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from ragtrace.backends import open_sink
from ragtrace.cli.extras import needs_extra
from ragtrace.cli.render import many, one_line
from ragtrace.errors import ConfigError, RagtraceError
from ragtrace.extras import install_command
from ragtrace.http.tls import ClientTls

if TYPE_CHECKING:
    from ragtrace_collector.config import StoreConfig
    from ragtrace_collector.config.kafka import KafkaConfig

_PACKAGES: Final = ("ragtrace-otel", "openai", "opentelemetry-sdk", "opentelemetry-exporter-otlp", "pydantic")
_EXTRAS: Final = {"collector": ("yaml", "starlette", "uvicorn", "httptools")}
EMPTY_EXPORT: Final = b""
"""A serialized ``ExportTraceServiceRequest`` without spans: valid, and nothing comes of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: Literal["ok", "warn", "fail"]
    found: str
    advice: str | None = None


def check_versions() -> Check:
    """Say what is installed."""
    parts = [f"Python {platform.python_version()}", *(f"{name} {_version(name)}" for name in _PACKAGES)]
    missing = [
        extra for extra, modules in _EXTRAS.items() if not all(find_spec(module) for module in modules)
    ]
    if not missing:
        return Check(name="versions", status="ok", found=", ".join(parts))
    return Check(
        name="versions",
        status="warn",
        found=", ".join(parts),
        advice=f"not installed: {install_command(','.join(missing))}",
    )


async def check_endpoint(
    endpoint: str, *, headers: Mapping[str, str], tls: ClientTls | None = None, timeout_s: float, must: bool
) -> Check:
    """Send an export without spans. Unless it ``must`` be there, its absence is a warning."""
    name = f"export {endpoint}"
    if endpoint.startswith("otlp-file:"):
        return _check_folder(name, Path(endpoint.removeprefix("otlp-file:")))
    try:
        async with aclosing(open_sink(endpoint, headers=headers, tls=tls, timeout_s=timeout_s)) as sink:
            await sink.send(EMPTY_EXPORT)
    except RagtraceError as exc:
        status: Literal["warn", "fail"] = "fail" if must else "warn"
        advice = None if isinstance(exc, ConfigError) else _ENDPOINT_ADVICE
        return Check(name=name, status=status, found=str(exc), advice=advice)
    return Check(name=name, status="ok", found="took an export without spans")


_ENDPOINT_ADVICE: Final = (
    "is the back end running, and is this its OTLP port (4317 gRPC, 4318 HTTP)? "
    "With TLS the address begins with https:// or grpcs://"
)


def check_store(store: StoreConfig) -> Iterator[Check]:
    """Say whether a collector could use the store, or does, and in whose traces it read nothing.

    Nothing is created.
    """
    from ragtrace_collector.store.ledger import take_stock
    from ragtrace_collector.store.open import database_of

    if store.url is None:
        yield _check_file(store.file)
        if not store.file.exists():
            return
    try:
        database = database_of(store)
        unread = take_stock(database).unread
    except RagtraceError as exc:
        if store.url is not None:
            yield Check(name="store", status="fail", found=str(exc))
        return  # the check of the file says it
    if store.url is not None:
        yield Check(name=f"store {database.name}", status="ok", found="can be read")
    for each in unread:
        if each.number:
            of = one_line(each.producer) or "producers without a name"
            found = f"nothing was read in {many(each.number, 'trace')} of {of}"
            yield Check(name="unread", status="warn", found=found, advice=one_line(each.advice))


def check_topics(kafka: KafkaConfig) -> Iterator[Check]:
    """Say of each topic of spans or dead letters whether it is there, and deletes what is old."""
    with needs_extra("kafka"):
        from ragtrace_collector.kafka import topic_states

    names = dict.fromkeys((*kafka.topics, *filter(None, map(kafka.dead_letter_topic, kafka.topics))))
    try:
        for topic in topic_states(kafka.client_settings(), [*names]):
            name, found = f"topic {topic.name}", topic.fault or many(topic.partitions, "partition")
            advice = f"kafka-topics.sh --create --topic {topic.name} --config cleanup.policy=delete"
            if topic.partitions:
                advice = f"kafka-configs.sh --alter --topic {topic.name} --add-config cleanup.policy=delete"
            yield Check(
                name=name,
                status="fail" if topic.fault else "ok",
                found=found,
                advice=f"{advice} --bootstrap-server {kafka.brokers[0]}" if topic.fault else None,
            )
    except RagtraceError as exc:
        yield Check(name="topics", status="fail", found=str(exc))


def _check_file(path: Path) -> Check:
    check = _check_folder(f"store {path}", path)
    if check.status == "ok" and _is_locked((real := path.resolve()).with_name(f"{real.name}.lock")):
        return Check(name=check.name, status="ok", found="in use by a collector that runs")
    return check


def _check_folder(name: str, path: Path) -> Check:
    folder = path.absolute().parent
    if path.is_dir():
        return Check(name=name, status="fail", found="is a folder", advice="name a file")
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        return Check(
            name=name, status="fail", found="cannot be written", advice="change its owner or its mode"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        why = "cannot be written" if folder.exists() else "does not exist"
        return Check(
            name=name, status="fail", found=f"the folder {folder} {why}", advice="make it, or name another"
        )
    return Check(name=name, status="ok", found="writable" if path.exists() else "can be created")


def _is_locked(lock: Path) -> bool:
    if not lock.exists():
        return False
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(not installed)"
