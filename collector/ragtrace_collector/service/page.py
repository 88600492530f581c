"""The page of judged answers over a collector's store: in its process, or in one of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ragtrace.answer_sources import TraceSource, first_of, open_source, parse_address
from ragtrace.answers.port import AnswerSource
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.errors import ConfigError
from ragtrace.files import state_folder
from ragtrace.ports import Clock
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.deliver import open_export
from ragtrace_collector.store.open import ReadOnlyStore, open_reading
from ragtrace_collector.ui.serving import AnswerPlace, ReviewPlace, configured_app, open_reviews
from ragtrace_collector.ui.site import CollectorStatus
from ragtrace_collector.web.server import HttpServer, ReceiverAuth, open_socket

_NOT_KEPT: Final = (
    "; texts are not kept (`index.content: false`): set `ui.traces` to the back end that has the traces"
)
REVIEWS_NAME: Final = "ragtrace-reviews.db"
"""Beside the store."""


@dataclass(slots=True, kw_only=True)
class UiService:
    """Serves the pages if `ui.listen` is set: opened, then started and stopped."""

    config: CollectorConfig
    auth: ReceiverAuth
    status: CollectorStatus
    clock: Clock
    port: int | None = None
    """The port of the pages, once they are open."""
    _server: HttpServer | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Open what the pages read; close it in the end.

        Raises:
            ConfigError: the address cannot be bound, or what the pages read cannot be opened.
        """
        ui = self.config.ui
        if ui.listen is None:
            yield
            return
        async with (
            open_store_place(self.config) as place,
            open_configured_reviews(self.config) as reviews,
        ):
            app = configured_app(
                self.config,
                place,
                auth=self.auth,
                clock=self.clock,
                reviews=reviews,
                status=self.status,
            )
            with closing(open_socket(ui.listen, key="ui.listen")) as listening:
                self.port = listening.getsockname()[1]
                self._server = HttpServer(app, listening, certificate=self.auth.certificate)
                yield

    @property
    def url(self) -> str:
        """Where a browser on this machine finds it."""
        return url_of_page(self.config, self.port or 0, is_secure=self.auth.certificate is not None)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Serve as a task of this group."""
        if self._server is not None:
            tasks.create_task(self._server.serve(), name="ui")

    def stop(self) -> None:
        """End the task after the open requests."""
        if self._server is not None:
            self._server.stop()


def url_of_page(config: CollectorConfig, port: int, *, is_secure: bool) -> str:
    """Return where a browser on this machine finds the page of answers."""
    host = (config.ui.listen or "").rpartition(":")[0]
    return f"http{'s' if is_secure else ''}://{'127.0.0.1' if host in ('0.0.0.0', '[::]') else host}:{port}/"


@asynccontextmanager
async def open_store_place(
    config: CollectorConfig, *, access: ConnectionSettings | None = None
) -> AsyncIterator[AnswerPlace]:
    """Open the store of a collector for reading, while it runs or is stopped.

    Raises:
        ConfigError: a key of the store or the address of the traces cannot be used.
    """
    async with place_over(open_reading(config.store), config, access) as place:
        yield place


@asynccontextmanager
async def place_over(
    store: ReadOnlyStore, config: CollectorConfig, access: ConnectionSettings | None = None
) -> AsyncIterator[AnswerPlace]:
    """Open the pages' place over an open store. Content is read from it, then from ``ui.traces``.

    Raises:
        ConfigError: the address of the traces cannot be used.
    """
    check_traces(config)
    rules = config.extract.opened()
    advice = "" if config.index.content or config.ui.traces else _NOT_KEPT
    kept = store.reader.kept
    of_store = TraceSource(
        reader=store.reader, name=store.name, rules=rules, kept=kept, is_store=True, advice=advice
    )
    sources: list[AnswerSource] = [of_store]
    if config.ui.traces:
        sources.append(open_source(config.ui.traces, access=access, rules=rules, index=store.index))
    async with aclosing(first_of(*sources)) as source:
        yield AnswerPlace(index=store.index, source=source)


def check_traces(config: CollectorConfig) -> None:
    """See that the page could read where it is told to.

    Raises:
        ConfigError: `ui.traces` is no address.
    """
    try:
        if config.ui.traces:
            parse_address(config.ui.traces)
    except ConfigError as exc:
        raise ConfigError(f"`ui.traces`: {exc}") from exc


def open_configured_reviews(config: CollectorConfig) -> AbstractAsyncContextManager[ReviewPlace]:
    """Open `ui.reviews`, or the file beside the store; reviews go where verdicts go.

    Raises:
        ConfigError: the file or the address of a back end cannot be used.
    """
    sinks = {export.endpoint: open_export(export) for export in config.export}
    return open_reviews(reviews_of(config), sinks=sinks, content=config.attach.content)


def reviews_of(config: CollectorConfig) -> Path:
    """Return where reviews are kept."""
    folder = state_folder() if config.store.url else config.store.file.parent
    return config.ui.reviews or folder / REVIEWS_NAME
