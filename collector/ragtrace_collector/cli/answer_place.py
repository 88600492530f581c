"""Where ``ragtrace ui`` and ``ragtrace tail`` find answers: a collector's store, a back end, a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ragtrace.cli.options import DEFAULT_SINCE, Moment, PlaceOptions, access
from ragtrace.cli.render import many, talk

if TYPE_CHECKING:
    from ragtrace.answer_sources import SearchProgress
    from ragtrace.ports import Clock
    from ragtrace_collector.config import CollectorConfig
    from ragtrace_collector.ui.serving import AnswerPlace, AnswerSearch


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
    from ragtrace.answer_sources.sources import BACK_ENDS, parse_address
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
        on_progress=_Progress(),
        rules=config.extract.opened(),
        **({} if pause_s is None else {"pause_s": pause_s}),
    )
    async with open_searched_place(search) as found:
        yield OpenedPlace(place=found, search=search)


class _Progress:
    """Says at every tenth of a search how far it is."""

    def __init__(self) -> None:
        self._tenths = 0

    def __call__(self, progress: SearchProgress) -> None:
        tenths = int(progress.share * 10)
        if progress.is_done:
            talk(f"Searched: {many(progress.answers, 'evaluation')} in {many(progress.traces, 'trace')}")
        elif tenths > self._tenths:
            talk(f"Searched {10 * tenths} %: {many(progress.answers, 'evaluation')} so far")
        self._tenths = tenths
