"""Where commands read the ledger and answers: a store, the collector that runs, a back end, a file."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ragtrace.cli.options import (
    DEFAULT_SINCE,
    ConfigOptions,
    Moment,
    PlaceOptions,
    access,
    group,
    option,
)
from ragtrace.cli.render import many, talk
from ragtrace.errors import InputError, ReadError
from ragtrace.process import SystemClock

if TYPE_CHECKING:
    import httpx

    from ragtrace.answer_sources import SearchProgress
    from ragtrace.ports import Clock
    from ragtrace_collector.config import CollectorConfig, StoreConfig
    from ragtrace_collector.ledger import Ledger
    from ragtrace_collector.operations.why import TraceStatus
    from ragtrace_collector.ui.serving import AnswerPlace, AnswerSearch

_TIMEOUT_S: Final = 10.0
_MOST_BYTES: Final = 16 << 20
_TOKEN: Final = "RAGTRACE_TOKEN"
_READ: Final = ("store", "sample", "assemble", "budget", "drift")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerOptions:
    """Where the ledger is: in the store, or with the collector that runs."""

    source: str | None = option(
        "--from",
        metavar="SOURCE",
        help="store:PATH or store:postgresql://… for the collector's store or a copy of it, or"
        " http://127.0.0.1:4329, the pages of a running collector, with a token in RAGTRACE_TOKEN."
        " [default: the store of --config, or the default store]",
    )
    at: ConfigOptions = group(ConfigOptions)

    @property
    def url(self) -> str | None:
        """The pages of a running collector, if it is asked itself."""
        return self.source if self.source and self.source.startswith(("http://", "https://")) else None

    def config(self) -> CollectorConfig | None:
        """Return the configuration; ``None`` if only the store is named.

        Raises:
            ConfigError: it is wrong.
        """
        import yaml  # noqa: F401

        if self.source is not None and self.at.path is None and not self.at.changes:
            return None
        return self.at.read(only=_READ, needs_secrets=False)

    def section_of(self, config: CollectorConfig | None) -> StoreConfig:
        """Return the section of the configuration, with the store that is named."""
        from ragtrace_collector.config import StoreConfig

        section = config.store if config else StoreConfig()
        named = (self.source or "").removeprefix("store:")
        return section.at(named) if named and named != "store" else section

    def standing(self, wanted: str) -> TraceStatus:
        """Say all that is known of a trace.

        Raises:
            ReadError: the store or the collector cannot be read.
            InputError: it is no trace id, or several begin so.
            ConfigError: the configuration is wrong.
        """
        from ragtrace.process import wait_for
        from ragtrace_collector.operations.pages import WHY_PATH, trace_status_form
        from ragtrace_collector.operations.why import look_up, trace_id_in
        from ragtrace_collector.service.collector import sampler_of
        from ragtrace_collector.store.open import open_reading

        trace_id = trace_id_in(wanted)
        if self.url is not None:
            return trace_status_form.validate_python(self._get(self.url, f"{WHY_PATH}{quote(trace_id)}"))
        config = self.config()
        store = open_reading(self.section_of(config))
        looking = look_up(
            store.reports,
            store.index,
            trace_id,
            config=config,
            sampler=sampler_of(config.sample) if config else None,
            now_ns=SystemClock().now_ns(),
            content=store.reader,
        )
        return wait_for(looking)

    def ledger_at(self, url: str, *, since_ns: int | None) -> Ledger:
        """Ask a running collector for the account, or that of the answers seen since.

        Raises:
            ReadError: the collector cannot be read.
        """
        from ragtrace_collector.operations.pages import LEDGER_PATH, ledger_form

        parameters = {} if since_ns is None else {"since_ns": str(since_ns)}
        return ledger_form.validate_python(self._get(url, LEDGER_PATH, parameters))

    def _get(self, url: str, path: str, parameters: Mapping[str, str] | None = None) -> object:
        import asyncio

        import httpx

        from ragtrace.http import UnreadableBody

        try:
            response = asyncio.run(_requested(f"{url.rstrip('/')}{path}", parameters or {}))
            answer = response.json()
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, UnreadableBody, ValueError) as exc:
            raise ReadError(
                f"{url} does not answer like a collector's pages ({str(exc) or 'too slow'}): name "
                "`telemetry.listen` of its configuration, http://127.0.0.1:4329 by default"
            ) from exc
        if response.is_success:
            return answer
        if response.status_code in (401, 403):
            raise ReadError(f"{url} requires a token that may read: put it into {_TOKEN}")
        message = answer.get("error") if isinstance(answer, dict) else None
        kind = InputError if response.status_code == 400 else ReadError
        raise kind(str(message) if message else f"{url} answers {response.status_code}: it has no such page")


async def _requested(url: str, parameters: Mapping[str, str]) -> httpx.Response:
    import asyncio

    from ragtrace.http import open_client

    token = os.environ.get(_TOKEN)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with (
        asyncio.timeout(_TIMEOUT_S),
        open_client(timeout_s=_TIMEOUT_S, most_bytes=_MOST_BYTES) as client,
    ):
        return await client.get(url, params=parameters, headers=headers)


_STORE: Final = "store:"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedPlace:
    """Where answers are, and the search that fills the index; a store needs none."""

    place: AnswerPlace
    search: AnswerSearch | None = None


@asynccontextmanager
async def open_place(
    config: CollectorConfig, place: PlaceOptions, clock: Clock, *, pause_s: float | None = None
) -> AsyncIterator[OpenedPlace]:
    """Open the store, or search the back end or file; the search looks again after ``pause_s``.

    Raises:
        InputError: there is no such store or file.
        ConfigError: an address or a key cannot be used.
    """
    from ragtrace.answer_sources import BACK_ENDS, parse_address
    from ragtrace_collector.service.page import open_store_place
    from ragtrace_collector.store.open import require_store
    from ragtrace_collector.ui.serving import AnswerSearch, open_searched_place

    given, source = access(place.headers), place.source
    if source is None or source.startswith(_STORE):
        named = (source or "").removeprefix(_STORE)
        at = config.store.at(named) if named else config.store
        require_store(at)
        async with open_store_place(config.model_copy(update={"store": at}), access=given) as found:
            yield OpenedPlace(place=found)
        return
    is_back_end = parse_address(source).kind in BACK_ENDS
    since = place.since or (Moment(DEFAULT_SINCE) if is_back_end else None)
    search = AnswerSearch(
        address=source,
        since_ns=since.at(clock.now_ns()) if since else 0,
        clock=clock,
        service=place.service,
        access=given,
        on_progress=_tell_end,
        rules=config.extract.opened(),
        **({} if pause_s is None else {"pause_s": pause_s}),
    )
    async with open_searched_place(search) as found:
        yield OpenedPlace(place=found, search=search)


def _tell_end(progress: SearchProgress) -> None:
    if progress.is_done:
        talk(f"Searched: {many(progress.answers, 'evaluation')} in {many(progress.traces, 'trace')}")
