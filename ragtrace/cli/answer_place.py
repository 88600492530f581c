"""Where ``report`` and ``compare`` read answers: a collector's store, a back end or a file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from ragtrace.answer_sources import BACK_ENDS, SearchProgress, find_answers, open_source, parse_address
from ragtrace.answers.index.reading import AnswerIndex, open_index
from ragtrace.answers.port import AnswerSource
from ragtrace.answers.summary import AnswerSummary, ScreenedAnswer
from ragtrace.cli.extras import needs_extra
from ragtrace.cli.options import access
from ragtrace.cli.report import DEFAULT_SINCE, AnswerPlaceOptions
from ragtrace.cli.times import Moment
from ragtrace.clock import SystemClock
from ragtrace.errors import ConfigError

if TYPE_CHECKING:
    from ragtrace.backends.http_api import ConnectionSettings
    from ragtrace_collector.config import CollectorConfig


_STORE: Final = "store:"
_DAY_NS: Final = 86_400 * 10**9
_AT_ONCE: Final = 500
MOST_ANSWERS: Final = 1_000_000
"""So many evaluations are read, the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The time range of the answers."""

    now_ns: int
    since_ns: int | None
    until_ns: int
    baseline_ns: int | None

    @classmethod
    def of(cls, place: AnswerPlaceOptions, source: str | None, *, baseline: timedelta | None = None) -> Times:
        """Return the range that the options name.

        Raises:
            ConfigError: it is empty, or the baseline has no end.
        """
        is_file, now_ns = _is_file(source), SystemClock().now_ns()
        since = place.since or (None if is_file else Moment(DEFAULT_SINCE))
        since_ns = since.at(now_ns) if since else None
        until_ns = place.until.at(now_ns) if place.until else now_ns
        if since_ns is not None and since_ns >= until_ns:
            raise ConfigError(f"--since {since} is not before --until {place.until or 'now'}")
        if baseline is not None and since_ns is None:
            raise ConfigError("--baseline needs --since: where does it end?")
        length_ns = int(baseline.total_seconds() * 1e9) if baseline else 0
        baseline_ns = since_ns - length_ns if since_ns is not None and length_ns else None
        return cls(now_ns=now_ns, since_ns=since_ns, until_ns=until_ns, baseline_ns=baseline_ns)

    @property
    def first_ns(self) -> int | None:
        """Where the reading begins."""
        return self.since_ns if self.baseline_ns is None else self.baseline_ns


def _is_file(source: str | None) -> bool:
    if source is None or source.startswith(_STORE):
        return False
    return parse_address(source).kind not in BACK_ENDS


@dataclass(slots=True, kw_only=True)
class Place:
    """Opened answers, and what is missing among them."""

    name: str
    index: AnswerIndex
    source: AnswerSource
    notices: list[str] = field(default_factory=list)
    states: Callable[[], Mapping[str, int]] | None = None
    """Counts all answers that a collector ever saw, by their state in its ledger."""
    screened: Callable[[int, int], Sequence[ScreenedAnswer]] | None = None
    """Returns the answers between two times that a screen looked at, judged or not."""


@asynccontextmanager
async def open_place(options: AnswerPlaceOptions, source: str | None, times: Times) -> AsyncIterator[Place]:
    """Open the answers of a source: a collector's store as it is, others in an index of their own.

    Raises:
        ConfigError: the configuration cannot be used, or the source has another form.
        ReadError: it cannot be read.
    """
    config = options.config.read(only=("extract", "store", "index"), needs_secrets=False)
    if source is None or source.startswith(_STORE):
        async with _opened_store(config, (source or "").removeprefix(_STORE)) as place:
            yield place
        return
    given = access(options.headers.headers)
    answers = open_source(source, access=given, rules=config.extract.opened())
    async with aclosing(answers), aclosing(open_index()) as index:
        place = Place(name=answers.name, index=index, source=answers)
        waiting: list[AnswerSummary] = []
        async for summary in _searched(source, options.service, times, given, place.notices):
            waiting.append(summary)
            if len(waiting) == _AT_ONCE:
                await index.add(waiting)
                waiting.clear()
        await index.add(waiting)
        yield place


@asynccontextmanager
async def _opened_store(configured: CollectorConfig, store: str) -> AsyncIterator[Place]:
    """Open the answers of the named store, else of the configured or the default one."""
    with needs_extra("collector"):
        from ragtrace_collector.service.page import place_over
        from ragtrace_collector.store.ledger import read_screened, take_stock
        from ragtrace_collector.store.open import open_reading, require_store

    section = configured.store.at(store) if store else configured.store
    require_store(section)
    found = open_reading(section)
    async with place_over(found, configured) as opened:

        def states() -> Mapping[str, int]:
            return take_stock(found.database).by(lambda account: account.state)

        def screened(since_ns: int, until_ns: int) -> Sequence[ScreenedAnswer]:
            return read_screened(found.database, since_ns, until_ns)

        yield Place(
            name=found.name, index=opened.index, source=opened.source, states=states, screened=screened
        )


async def _searched(
    source: str, service: str | None, times: Times, given: ConnectionSettings, notices: list[str]
) -> AsyncIterator[AnswerSummary]:
    """Yield the answers of a back end or file; those of a clock that is ahead, too."""
    last: list[SearchProgress] = []

    def keep(progress: SearchProgress) -> None:
        last[:] = [progress]

    async for summary in find_answers(
        source,
        since_ns=times.first_ns or 0,
        until_ns=times.now_ns + _DAY_NS,
        service=service,
        access=given,
        on_progress=keep,
    ):
        yield summary
    notices.extend(last[0].notices if last else ())
