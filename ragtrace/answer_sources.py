"""Where answers are opened and found without a collector: stores, back ends, files and reports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from ragtrace import semconv
from ragtrace.answers.carrier import (
    as_carrier,
    in_order,
    is_carrier,
    of_tenant,
    open_answer,
    records_in,
    summary_of,
)
from ragtrace.answers.index import AnswerIndex
from ragtrace.answers.port import AnswerDamaged, AnswerGone, AnswerSource, AnswerVersion, OpenedAnswer
from ragtrace.answers.rows import ReportLine, is_report, read_line, report_lines
from ragtrace.answers.summary import (
    AnswerKey,
    AnswerSummary,
    SessionSummary,
    feedback_in,
    key_of,
    session_summary_of,
    short_question,
    summary_of_judged,
)
from ragtrace.backends import open_reader
from ragtrace.backends.http_api import ConnectionSettings, can_search, windows
from ragtrace.errors import ConfigError, InputError, ReadError, ReadUnavailable
from ragtrace.http import Sleep, without_secrets
from ragtrace.model import (
    Label,
    RagRecord,
)
from ragtrace.ports import Page, TraceQuery, TraceReader, TraceSearch
from ragtrace.traces.extract import ExtractRules
from ragtrace.traces.trace import Span, Trace

BACK_ENDS: Final = ("jaeger", "tempo", "phoenix", "langfuse")
_ACCEPTED: Final = (
    "give jaeger:http://host:16686, tempo:http://host:3200, phoenix:http://host:6006, langfuse:https://host,"
    " otlp-file:PATH for a file or folder of OTLP, or file:PATH for one or for a report.jsonl"
)
_HEAD_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerAddress:
    """A place that has answers."""

    kind: str
    """``jaeger``, ``tempo``, ``phoenix``, ``langfuse``, ``otlp-file`` or ``report``."""
    rest: str = field(repr=False)
    """URL or path; a URL may hold a login."""

    @property
    def name(self) -> str:
        """Kind and address, without secrets."""
        return f"{'file' if self.kind == 'report' else self.kind}:{without_secrets(self.rest)}"

    def reader(
        self,
        *,
        access: ConnectionSettings | None = None,
        on_fault: Callable[[InputError], None] | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> TraceReader:
        """Open the reader of its traces.

        Raises:
            ConfigError: the address has another form.
        """
        return open_reader(f"{self.kind}:{self.rest}", access=access, on_fault=on_fault, sleep=sleep)


def parse_address(address: str) -> AnswerAddress:
    """Read an address; a path without a kind is a file.

    Raises:
        ConfigError: it is not an address, there is no such file, or the file can be read only once.
    """
    kind, _, rest = address.partition(":")
    if kind in BACK_ENDS and rest:
        return AnswerAddress(kind=kind, rest=rest)
    if kind in ("file", "otlp-file") and rest:
        return _of_file(rest, is_otlp=kind == "otlp-file")
    if "://" not in address and Path(address).exists():
        return _of_file(address, is_otlp=False)
    named = f"{without_secrets(address)!r}"
    told = named if ":" in address else f"there is no file {named}, and it"
    raise ConfigError(f"{told} is not an address to read answers from: {_ACCEPTED}")


def _of_file(name: str, *, is_otlp: bool) -> AnswerAddress:
    path = Path(name)
    if not (path.is_file() or path.is_dir()):
        why = "it would be read several times" if path.exists() or name == "-" else "there is no such file"
        raise ConfigError(f"{name!r} cannot be opened for answers: {why}: give a file or a folder")
    is_of_report = not is_otlp and path.is_file() and holds_report(path)
    return AnswerAddress(kind="report" if is_of_report else "otlp-file", rest=name)


def holds_report(path: Path) -> bool:
    """Return whether a file begins as a ``report.jsonl``.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return is_report(file.read(_HEAD_BYTES).lstrip().partition(b"\n")[0])
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror or exc}") from exc


_LONGEST_S: Final = 30.0
"""How long a person waits for an answer, with the retries of the reader."""
_DEFAULT_RULES: Final = ExtractRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAnswer:
    """What a collector keeps of a judged answer apart from the spans of its trace."""

    carriers: Sequence[Span] = ()
    """In the order of judging, with the superseded ones."""
    record: RagRecord | None = None
    """What was judged last, if content is kept."""
    is_forgotten: bool = False
    """Both were deleted before the answer's row, to make room."""


KeptAnswers: TypeAlias = Callable[[AnswerKey], Awaitable[KeptAnswer]]
"""Returns what a collector keeps of an answer; of another tenant nothing. May raise `ReadError`."""


def open_source(
    address: str,
    *,
    access: ConnectionSettings | None = None,
    rules: ExtractRules = _DEFAULT_RULES,
    index: AnswerIndex | None = None,
    longest_s: float = _LONGEST_S,
    sleep: Sleep = asyncio.sleep,
) -> AnswerSource:
    """Open the source for a URL after ``jaeger:``, ``tempo:``, ``phoenix:`` or ``langfuse:``, or for a path
    after ``otlp-file:`` or ``file:``; ``file:`` is OTLP or a ``report.jsonl``, told apart by content.

    ``rules`` are those by which the collector reads records. ``index`` knows which evaluations are a tenant's
    if their spans name none. ``longest_s`` limits one opening, in seconds.

    Raises:
        ConfigError: the address has another form, or there is no such file.
    """
    place = parse_address(address)
    if place.kind == "report":
        return ReportSource(Path(place.rest), name=place.name)
    faults: list[InputError] = []
    reader = place.reader(access=access, on_fault=faults.append, sleep=sleep)
    return TraceSource(
        reader=reader, name=place.name, rules=rules, index=index, longest_s=longest_s, faults=faults
    )


def store_source(
    reader: TraceReader,
    kept: KeptAnswers | None,
    *,
    name: str,
    rules: ExtractRules = _DEFAULT_RULES,
    advice: str = "",
) -> AnswerSource:
    """Make the source of a collector's store, whose trace ids have the tenant: ``<trace id>@<tenant>``.

    ``advice`` is told of an answer that it does not have any more.
    """
    return TraceSource(reader=reader, name=name, rules=rules, kept=kept, is_store=True, advice=advice)


def first_of(*sources: AnswerSource) -> AnswerSource:
    """Return a source that asks others in turn, such as a collector's store and then the back end."""
    return sources[0] if len(sources) == 1 else _FirstOf(sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSource:
    """Opens answers from the traces of a reader."""

    reader: TraceReader
    name: str
    rules: ExtractRules = _DEFAULT_RULES
    kept: KeptAnswers | None = None
    is_store: bool = False
    """It is a collector's: its ids have the tenant, so that it gives the tenant's spans alone."""
    index: AnswerIndex | None = None
    longest_s: float = _LONGEST_S
    faults: list[InputError] = field(default_factory=list)
    """Where the reader puts the pieces of files that it cannot read."""
    advice: str = ""

    async def open(self, key: AnswerKey) -> OpenedAnswer:
        """Return the answer with its content.

        Raises:
            AnswerGone: the place has no such trace, or no evaluation of this span.
            ReadError: the place could not be read in time, or sent what cannot be read.
        """
        self.faults.clear()
        trace, kept = await self._read(key)
        versions = await self.index.versions(key) if self.index and key.tenant else ()
        return await asyncio.to_thread(
            open_answer,
            trace,
            key,
            self.rules,
            read_from=self.name,
            evaluations={version.carrier_span_id for version in versions},
            is_own=self.is_store,
            kept=kept.record,
        )

    async def aclose(self) -> None:
        """Release sockets and files."""
        await self.reader.aclose()

    async def _read(self, key: AnswerKey) -> tuple[Trace, KeptAnswer]:
        try:
            async with asyncio.timeout(self.longest_s):
                wanted = f"{key.trace_id}@{key.tenant}" if self.is_store else key.trace_id
                trace = await self.reader.get(wanted)
                kept = await self.kept(key) if self.kept else KeptAnswer()
        except TimeoutError as exc:
            raise ReadUnavailable(f"{self.name} did not answer within {self.longest_s:g} s") from exc
        except InputError as exc:
            raise ReadError(f"{self.name}: {exc}") from exc
        except ReadError as exc:
            if self.is_store:
                raise AnswerDamaged(str(exc)) from exc
            raise
        if kept.is_forgotten and trace is None:
            raise AnswerGone(f"{self.name} has no texts of this answer any more: {_FORGOTTEN}{self.advice}")
        if trace is None and not kept.carriers:
            gone = f"{self.name} has no trace {key.trace_id} (any more){_unread(self.faults)}"
            raise AnswerGone(f"{gone}{self.advice}")
        return Trace.of(key.trace_id, (*(trace.spans if trace else ()), *kept.carriers)), kept


class ReportSource:
    """Opens answers from the lines of a ``report.jsonl``."""

    def __init__(self, path: Path, *, name: str) -> None:
        self.name = name
        self._path = path

    async def open(self, key: AnswerKey) -> OpenedAnswer:
        """Return the answer with every evaluation that the report has of it.

        Raises:
            AnswerGone: the report has no such answer.
            ReadError: the file cannot be read.
        """
        try:
            found, faults = await asyncio.to_thread(self._versions, key)
        except InputError as exc:
            raise ReadError(str(exc)) from exc
        if not found:
            where = f"span {key.span_id} of trace {key.trace_id}"
            raise AnswerGone(f"{self.name} has no answer on {where}{_unread(faults)}")
        versions = in_order(found)
        record = versions[0].judged.record
        return OpenedAnswer(
            key=key, record=record, versions=versions, trace=None, read_from=self.name, notices=(_OF_REPORT,)
        )

    async def aclose(self) -> None:
        """Do nothing: the file is closed after every reading."""

    def _versions(self, key: AnswerKey) -> tuple[list[AnswerVersion], list[InputError]]:
        found: list[AnswerVersion] = []
        faults: list[InputError] = []
        trace_id = key.trace_id.encode()
        for line in (each for each in report_lines(self._path) if trace_id in each.text):
            try:
                version = read_line(line)
            except InputError as fault:
                faults.append(fault)  # such as a line that was cut off: others may have the answer
                continue
            if _is_about(version, key):
                found.append(version)
        return found, faults


_FORGOTTEN: Final = "the oldest went first when the store was full (`store.max_bytes`), and its scores stay"
_OF_REPORT: Final = "A report has no trace: there are no spans to show"


def _unread(faults: Sequence[InputError]) -> str:
    if not faults:
        return ""
    parts = "1 part" if len(faults) == 1 else f"{len(faults):,} parts"
    return f"; {parts} of it cannot be read, and may have it: {faults[0]}"


def _is_about(version: AnswerVersion, key: AnswerKey) -> bool:
    own = key_of(version.judged.record)
    return own == key._replace(tenant=key.tenant or own.tenant)


class _FirstOf:
    """Asks several places in turn."""

    def __init__(self, sources: Sequence[AnswerSource]) -> None:
        self._sources = sources

    @property
    def name(self) -> str:
        """The places, in the order in which they are asked."""
        return ", then ".join(source.name for source in self._sources)

    async def open(self, key: AnswerKey) -> OpenedAnswer:
        """Return the answer from the first place that has it whole, or else the most that one has.

        Raises:
            AnswerGone: every place was read, and none has it.
            ReadError: no place has it, and at least one could not be read.
        """
        gone: list[str] = []
        down: list[ReadError] = []
        partial: OpenedAnswer | None = None
        for source in self._sources:
            try:
                opened = await source.open(key)
            except AnswerGone as exc:
                gone.append(str(exc))
            except ReadError as exc:
                down.append(exc)
            else:
                if _has_content(opened) and _has_spans(opened):
                    return opened
                if partial is None or not _has_content(partial):
                    partial = opened
        if partial is not None:
            return partial
        if down:
            is_damage = all(isinstance(each, AnswerDamaged) for each in down)
            raise (AnswerDamaged if is_damage else ReadUnavailable)("; ".join((*map(str, down), *gone)))
        raise AnswerGone("; ".join(gone))

    async def aclose(self) -> None:
        """Release the sockets and files of all, even if one cannot be closed."""
        async with AsyncExitStack() as closing:
            for source in self._sources:
                closing.push_async_callback(source.aclose)


def _has_content(opened: OpenedAnswer) -> bool:
    return opened.record.answer is not None or opened.record.question is not None


def _has_spans(opened: OpenedAnswer) -> bool:
    """Return whether the application's spans are there, or never were, as in a report."""
    return opened.trace is None or not all(map(is_carrier, opened.trace.spans))


_AT_ONCE: Final = 8
"""Traces read by id at the same time."""
_MOST_FAILURES: Final = 3
"""After this many unreadable traces in a row, the place counts as failed."""
_LINES_AT_ONCE: Final = 500


@dataclass(slots=True, kw_only=True)
class SearchProgress:
    """How far a search came, and what it could not see. Nothing else was left out."""

    since_ns: int
    until_ns: int
    searched_to_ns: int
    """Everything before was searched; of a file, which has no order, all or nothing."""
    share: float = 0.0
    """How much was searched, from 0 to 1."""
    traces: int = 0
    answers: int = 0
    """Evaluations found."""
    cut_windows: int = 0
    """Moments with more traces than the back end returns at once."""
    unread: int = 0
    """Traces, or parts of files, that cannot be read."""
    first_fault: str = ""
    is_done: bool = False

    @property
    def notices(self) -> tuple[str, ...]:
        """Sentences about what is missing."""
        cut = f"At times ({self.cut_windows:,}) the place has more traces than it returns: some are missing"
        unread = f"Traces or parts of files ({self.unread:,}) cannot be read, the first: {self.first_fault}"
        return (*((cut,) if self.cut_windows else ()), *((unread,) if self.unread else ()))

    def fault(self, fault: BaseException) -> None:
        """Count what cannot be read."""
        self.first_fault = self.first_fault or str(fault)
        self.unread += 1


OnProgress = Callable[[SearchProgress], None]


OnSession = Callable[[SessionSummary], None]


async def find_answers(
    address: str,
    *,
    since_ns: int,
    until_ns: int,
    service: str | None = None,
    access: ConnectionSettings | None = None,
    on_progress: OnProgress = lambda _: None,
    on_session: OnSession = lambda _: None,
    rules: ExtractRules = _DEFAULT_RULES,
    sleep: Sleep = asyncio.sleep,
) -> AsyncIterator[AnswerSummary]:
    """Yield the evaluations in a time range of a place, back ends from the oldest to the newest.

    The range is about when the carriers are in the trace, as the back end finds them; of a report, about
    when the answers were given. A superseded evaluation is yielded, too, and one may come twice.
    ``on_progress`` is called after each part of the search, at last with ``is_done``, and ``on_session`` with
    each judged session in a trace. Questions are read by the ``rules``.

    Raises:
        ConfigError: the address has another form.
        ReadError: the place could not be read (further): the progress says how far it was.
    """
    place = parse_address(address)
    run = SearchProgress(since_ns=since_ns, until_ns=until_ns, searched_to_ns=since_ns)
    tell = partial(on_progress, run)
    if place.kind == "report":
        async for summary in _of_report(Path(place.rest), service, run, tell):
            yield summary
    else:
        reader = place.reader(access=access, on_fault=run.fault, sleep=sleep)
        async with aclosing(reader):
            traces = _traces(reader, place, service, run, tell)
            async for summary in _of_traces(traces, service, run, on_session, rules):
                yield summary
    run.searched_to_ns, run.share, run.is_done = until_ns, 1.0, True
    tell()


async def _of_traces(
    traces: AsyncIterator[Trace],
    service: str | None,
    run: SearchProgress,
    on_session: OnSession,
    rules: ExtractRules,
) -> AsyncIterator[AnswerSummary]:
    async for trace in traces:
        for span in trace.spans:
            told = session_summary_of(span)
            if told and service in (None, span.resource.attributes.get(semconv.SERVICE_NAME)):
                on_session(told)
        for summary in await asyncio.to_thread(_in_trace, trace, rules):
            if _is_of_service(summary, service):
                run.answers += 1
                yield summary


def _in_trace(trace: Trace, rules: ExtractRules) -> list[AnswerSummary]:
    """Return the summary of each evaluation in a trace, with its question and the feedback on its answer."""
    feedback = {given.span_id: given.thumbs for given in feedback_in(trace.spans)}  # the last one counts
    read = [summary_of(as_carrier(span)) for span in trace.spans if is_carrier(span)]
    found = [summary for summary in read if summary is not None]
    tenants = {summary.key.tenant for summary in found}
    records = {tenant: records_in(of_tenant(trace, tenant)[0], rules).by_span for tenant in tenants}
    return [
        replace(
            summary,
            feedback=summary.feedback or feedback.get(summary.key.span_id, feedback.get("", "")),
            question=short_question(records[summary.key.tenant].get(summary.key.span_id)),
        )
        for summary in found
    ]


async def _traces(
    reader: TraceReader,
    place: AnswerAddress,
    service: str | None,
    run: SearchProgress,
    tell: Callable[[], None],
) -> AsyncIterator[Trace]:
    if not can_search(reader):
        async for trace in _all(reader, run, tell):
            yield trace
        return
    query = TraceQuery(since_ns=run.since_ns, until_ns=run.until_ns, service=service)
    search = partial(_search_jaeger, reader) if place.kind == "jaeger" else reader.search
    async for window in windows(reader, _for_carriers(query, place.kind), search):
        run.cut_windows += window.is_cut
        for whole in filter(None, window.found.values()):
            run.traces += 1
            yield whole
        named = [trace_id for trace_id, found in window.found.items() if found is None]
        async for trace in _by_id(reader, named, run):
            yield trace
        run.searched_to_ns = window.until_ns
        run.share = min(1.0, (window.until_ns - run.since_ns) / max(1, run.until_ns - run.since_ns))
        tell()


async def _all(reader: TraceReader, run: SearchProgress, tell: Callable[[], None]) -> AsyncIterator[Trace]:
    """Yield the traces of a file with a carrier in the range."""
    try:
        async for trace in reader.traces():
            run.traces += 1
            if any(run.since_ns <= span.start_ns < run.until_ns for span in trace.spans if is_carrier(span)):
                yield trace
            if run.traces % _LINES_AT_ONCE == 0:
                run.share = getattr(reader, "share_read", None) or 0.0
                tell()
    except InputError as exc:
        raise ReadError(str(exc)) from exc


def _for_carriers(query: TraceQuery, kind: str) -> TraceQuery:
    """Narrow a search to traces with carriers, where the back end can.

    Phoenix and Langfuse may have scores in place of carriers, which no search finds: every trace is read.
    """
    if kind == "tempo":
        # one query for all versions of the schema, and for answers with their scores
        named = "" if query.service is None else f" && resource.service.name = {_quoted(query.service)}"
        return replace(query, traceql=f"{{ .{semconv.SCHEMA} != nil{named} }}")
    return replace(query, service=None) if kind == "langfuse" else query


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


async def _search_jaeger(reader: TraceSearch, query: TraceQuery) -> Page:
    """Search Jaeger for carriers: by the names that they have, and for answers with their scores."""
    wanted = [replace(query, operation=f"{semconv.CARRIER_NAME_PREFIX} {label.value}") for label in Label]
    wanted.append(replace(query, tags={semconv.EVAL_MODE: "hold"}))
    return Page.joined([await reader.search(one) for one in wanted])


async def _by_id(reader: TraceReader, trace_ids: list[str], run: SearchProgress) -> AsyncIterator[Trace]:
    """Yield the traces that exist and can be read, some read at a time; an unreadable one stops no other.

    Raises:
        ReadError: no trace could be read so far, or several in a row could not.
    """
    failed_in_a_row = 0
    for first in range(0, len(trace_ids), _AT_ONCE):
        batch = trace_ids[first : first + _AT_ONCE]
        for found in await asyncio.gather(*map(reader.get, batch), return_exceptions=True):
            if isinstance(found, BaseException):
                failed_in_a_row += 1
                is_known = isinstance(found, ReadError | InputError) and run.traces
                if not is_known or failed_in_a_row == _MOST_FAILURES:
                    raise found
                run.fault(found)
            else:
                failed_in_a_row = 0
                if found is not None:
                    run.traces += 1
                    yield found


async def _of_report(
    path: Path, service: str | None, run: SearchProgress, tell: Callable[[], None]
) -> AsyncIterator[AnswerSummary]:
    lines, read = report_lines(path), 0
    size = await asyncio.to_thread(lambda: path.stat().st_size if path.exists() else 0)
    try:
        while batch := await asyncio.to_thread(lambda: list(islice(lines, _LINES_AT_ONCE))):
            for summary in await asyncio.to_thread(_summaries, batch, run):
                is_within = not summary.time_ns or run.since_ns <= summary.time_ns < run.until_ns
                if is_within and _is_of_service(summary, service):
                    run.answers += 1
                    yield summary
            read += sum(len(line.text) for line in batch)
            run.share = min(1.0, read / max(1, size))
            tell()
    except InputError as exc:
        raise ReadError(str(exc)) from exc


def _summaries(lines: list[ReportLine], run: SearchProgress) -> list[AnswerSummary]:
    found = []
    for line in lines:
        try:
            found.append(summary_of_judged(read_line(line).judged))
        except InputError as fault:
            run.fault(fault)
        else:
            run.traces += 1
    return found


def _is_of_service(summary: AnswerSummary, service: str | None) -> bool:
    return service is None or not summary.service or summary.service == service
