"""The page of judged answers over a collector's store: in its process, or in one of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import dataclass

from ragtrace.answer_sources import first_of, open_source, store_source
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.ports import Clock
from ragtrace_collector.config import CollectorConfig
from ragtrace_collector.store.open import open_reading
from ragtrace_collector.ui.places import AnswerPlace
from ragtrace_collector.ui.serving import configured_app
from ragtrace_collector.ui.site import CollectorStatus
from ragtrace_collector.web.auth import ReceiverAuth
from ragtrace_collector.web.server import HttpServer, open_socket


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
        async with open_store_place(self.config) as place:
            app = configured_app(self.config, place, auth=self.auth, clock=self.clock, status=self.status)
            with closing(open_socket(ui.listen, key="ui.listen")) as listening:
                self.port = listening.getsockname()[1]
                self._server = HttpServer(app, listening, certificate=self.auth.certificate)
                yield

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Serve as a task of this group."""
        if self._server is not None:
            tasks.create_task(self._server.serve(), name="ui")

    def stop(self) -> None:
        """End the task after the open requests."""
        if self._server is not None:
            self._server.stop()


@asynccontextmanager
async def open_store_place(
    config: CollectorConfig, *, access: ConnectionSettings | None = None
) -> AsyncIterator[AnswerPlace]:
    """Open the store of a collector for reading, while it runs or is stopped.

    Content is read from the store, and then from ``ui.traces``.

    Raises:
        ConfigError: a key of the store or the address of the traces cannot be used.
    """
    store, rules = open_reading(config.store), config.extract.opened()
    sources = [store_source(store.reader, None, name=store.name, rules=rules)]
    if config.ui.traces:
        sources.append(open_source(config.ui.traces, access=access, rules=rules))
    async with aclosing(first_of(*sources)) as source:
        yield AnswerPlace(index=store.index, source=source)
