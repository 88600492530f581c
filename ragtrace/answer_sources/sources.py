"""Places that have answers, by their addresses, and how an answer is opened there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from ragtrace.answers.carrier import in_order, is_carrier, open_answer
from ragtrace.answers.index import AnswerIndex
from ragtrace.answers.port import AnswerDamaged, AnswerGone, AnswerSource, AnswerVersion, OpenedAnswer
from ragtrace.answers.rows import ReportLine, is_report, read_line, trace_ids_in
from ragtrace.answers.summary import AnswerKey, key_of
from ragtrace.backends import open_reader
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.backends.otlp_reader import LineIndex
from ragtrace.errors import ConfigError, InputError, ReadError, ReadUnavailable
from ragtrace.http import without_secrets
from ragtrace.http.retry import Sleep
from ragtrace.model import RagRecord
from ragtrace.ports import TraceReader
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
    raise ConfigError(f"{without_secrets(address)!r} is not an address to read answers from: {_ACCEPTED}")


def _of_file(name: str, *, is_otlp: bool) -> AnswerAddress:
    path = Path(name)
    if not (path.is_file() or path.is_dir()):
        why = "it would be read several times" if path.exists() or name == "-" else "there is no such file"
        raise ConfigError(f"{name!r} cannot be opened for answers: {why}: give a file or a folder")
    if is_otlp or path.is_dir() or not is_report(_first_line(path)):
        return AnswerAddress(kind="otlp-file", rest=name)
    return AnswerAddress(kind="report", rest=name)


def _first_line(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES).lstrip().partition(b"\n")[0]
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
                kept = await self._kept(key) if self._kept else KeptAnswer()
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
