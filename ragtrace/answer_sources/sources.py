"""Open answers where their content is: a back end, a file, a collector's store, a report."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from ragtrace.answer_sources.addresses import parse_address
from ragtrace.answers.carrier import is_carrier
from ragtrace.answers.index.reading import AnswerIndex
from ragtrace.answers.opened import AnswerDamaged, AnswerGone, AnswerSource, AnswerVersion, OpenedAnswer
from ragtrace.answers.opening import in_order, open_answer
from ragtrace.answers.rows import ReportLine, read_line, trace_ids_in
from ragtrace.answers.summary import AnswerKey, key_of
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.backends.otlp_reader import LineIndex
from ragtrace.errors import InputError, ReadError, ReadUnavailable
from ragtrace.http.retry import Sleep
from ragtrace.model import RagRecord
from ragtrace.ports import TraceReader
from ragtrace.traces.extract import ExtractRules
from ragtrace.traces.trace import Span, Trace

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


class KeptAnswers(Protocol):
    """Where a collector keeps judged answers."""

    async def kept(self, key: AnswerKey) -> KeptAnswer:
        """Return what is kept of an answer; of another tenant nothing.

        Raises:
            ReadError: the store could not be read.
        """
        ...


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
    return TraceSource(reader, name=place.name, rules=rules, index=index, longest_s=longest_s, faults=faults)


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
    return TraceSource(reader, name=name, rules=rules, kept=kept, is_store=True, advice=advice)


def first_of(*sources: AnswerSource) -> AnswerSource:
    """Return a source that asks others in turn, such as a collector's store and then the back end."""
    return sources[0] if len(sources) == 1 else _FirstOf(sources)


class TraceSource:
    """Opens answers from the traces of a reader."""

    def __init__(
        self,
        reader: TraceReader,
        *,
        name: str,
        rules: ExtractRules = _DEFAULT_RULES,
        kept: KeptAnswers | None = None,
        is_store: bool = False,
        index: AnswerIndex | None = None,
        longest_s: float = _LONGEST_S,
        faults: list[InputError] | None = None,
        advice: str = "",
    ) -> None:
        """``is_store`` says that it is a collector's: its ids have the tenant, so that it gives the tenant's
        spans alone. ``faults`` is where the reader puts the pieces of files that it cannot read."""
        self.name = name
        self._reader = reader
        self._rules = rules
        self._kept = kept
        self._is_store = is_store
        self._index = index
        self._longest_s = longest_s
        self._faults = [] if faults is None else faults
        self._advice = advice

    async def open(self, key: AnswerKey) -> OpenedAnswer:
        """Return the answer with its content.

        Raises:
            AnswerGone: the place has no such trace, or no evaluation of this span.
            ReadError: the place could not be read in time, or sent what cannot be read.
        """
        self._faults.clear()
        trace, kept = await self._read(key)
        versions = await self._index.versions(key) if self._index and key.tenant else ()
        return await asyncio.to_thread(
            open_answer,
            trace,
            key,
            self._rules,
            read_from=self.name,
            evaluations={version.carrier_span_id for version in versions},
            is_own=self._is_store,
            kept=kept.record,
        )

    async def aclose(self) -> None:
        """Release sockets and files."""
        await self._reader.aclose()

    async def _read(self, key: AnswerKey) -> tuple[Trace, KeptAnswer]:
        try:
            async with asyncio.timeout(self._longest_s):
                wanted = f"{key.trace_id}@{key.tenant}" if self._is_store else key.trace_id
                trace = await self._reader.get(wanted)
                kept = await self._kept.kept(key) if self._kept else KeptAnswer()
        except TimeoutError as exc:
            raise ReadUnavailable(f"{self.name} did not answer within {self._longest_s:g} s") from exc
        except InputError as exc:
            raise ReadError(f"{self.name}: {exc}") from exc
        except ReadError as exc:
            if self._is_store:
                raise AnswerDamaged(str(exc)) from exc
            raise
        if kept.is_forgotten and trace is None:
            raise AnswerGone(f"{self.name} has no texts of this answer any more: {_FORGOTTEN}{self._advice}")
        if trace is None and not kept.carriers:
            gone = f"{self.name} has no trace {key.trace_id} (any more){_unread(self._faults)}"
            raise AnswerGone(f"{gone}{self._advice}")
        return Trace.of(key.trace_id, (*(trace.spans if trace else ()), *kept.carriers)), kept


class ReportSource:
    """Opens answers from the lines of a ``report.jsonl``."""

    def __init__(self, path: Path, *, name: str) -> None:
        self.name = name
        self._path = path
        self._index = LineIndex(trace_ids_in)

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
        """Delete the index of lines; the file is closed after every reading."""
        self._index.close()

    def _versions(self, key: AnswerKey) -> tuple[list[AnswerVersion], list[InputError]]:
        found: list[AnswerVersion] = []
        faults: list[InputError] = []
        for line in self._lines(key):
            try:
                version = read_line(line)
            except InputError as fault:
                faults.append(fault)  # such as a line that was cut off: others may have the answer
                continue
            if _is_about(version, key):
                found.append(version)
        return found, faults

    def _lines(self, key: AnswerKey) -> list[ReportLine]:
        path = self._path
        try:
            named = self._index.lines(path, key.trace_id)
        except OSError as exc:
            raise InputError(f"{path} cannot be read: {exc.strerror or exc}") from exc
        return [ReportLine(f"{path}, byte {line.start}", line.text) for line in named]


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
