"""``ragtrace explain``: what is read from a trace, from which span and attribute, and why."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ragtrace.cli.options import (
    ConfigOptions,
    JsonOption,
    access,
    command,
    from_headers_option,
    group,
    option,
    takes,
)
from ragtrace.cli.render import many, one_line, open_console, print_indented, print_json, talk
from ragtrace.errors import InputError, ReadError

if TYPE_CHECKING:
    from rich.console import Console

    from ragtrace.cli.judging import LeftOutRows
    from ragtrace.model import Chunk, Part, Provenance, RagRecord
    from ragtrace.ports import TraceReader
    from ragtrace.traces.extract import Extraction, ExtractionNote
    from ragtrace.traces.trace import Trace
    from ragtrace_collector.config import CollectorConfig


_STORE: Final = "store"
_DEFAULT_SOURCE: Final = "jaeger:http://localhost:16686"
_TRACE_ID: Final = re.compile(r"([0-9a-fA-F]{32})(@.*)?")
_SHOWN_CHARS: Final = 200
_SHOWN_CHUNKS: Final = 5
_PART_INDENT: Final = 4
_CHUNK_INDENT: Final = 6
_SHOWN_SPANS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Where the trace is, and how it is read."""

    source: str | None = option(
        "--from",
        metavar="SOURCE",
        help="Where the trace is: jaeger:URL, otlp-file:PATH, or store:PATH for a collector's store, even"
        " while it runs; store alone is that of --config. [default: the store of --config, else"
        f" {_DEFAULT_SOURCE}]",
    )
    headers: Mapping[str, str] = from_headers_option()
    config: ConfigOptions = group(ConfigOptions)
    json: JsonOption = group(JsonOption)


@command()
@click.argument("what", metavar="FILE|TRACE_ID")
@takes(options=SourceOptions)
def explain(what: str, options: SourceOptions) -> None:
    """Show what is read from a trace, from which span and attribute, and why.

    FILE holds traces: OTLP as the OpenTelemetry Collector's file exporter writes it, a trace downloaded from
    Jaeger's page or Tempo's API, or what a console exporter printed. The output names spans that hold the
    same part and were not used, with the rule, and parts that are missing or damaged, with the reason and
    with what to turn on. Nothing is judged.

    \b
    Examples:
      ragtrace explain traces.jsonl
      ragtrace explain 5b8efff798038103d269b633813fc60c
      ragtrace explain 5b8efff798038103d269b633813fc60c --from store
      ragtrace explain 5b8efff798038103d269b633813fc60c --config collector.yaml
      ragtrace explain traces.jsonl --set extract.mapping.question=app.question
      ragtrace explain traces.jsonl --json | jq '.records[].gaps'
    """
    import asyncio

    from ragtrace.cli.judging import LeftOutRows

    config = options.config.read(only=("extract", "store"), needs_secrets=False)
    faults = LeftOutRows()
    reader, trace_id = _find(what, options, config, faults)
    traces = reader.traces() if trace_id is None else _one(reader, trace_id, options.source)
    asyncio.run(_explain(reader, traces, config, as_json=options.json.wanted))
    if faults.number:
        raise InputError(f"{many(faults.number, 'part')} of {what} cannot be read and is not shown")


async def _explain(
    reader: TraceReader, traces: AsyncIterator[Trace], config: CollectorConfig, *, as_json: bool
) -> None:
    from ragtrace.traces.extract import extract_records

    rules = config.extract.opened()
    console = None if as_json else open_console()
    number = whole = damaged = 0
    async with aclosing(reader):
        async for trace in traces:
            number += 1
            extraction = extract_records(trace, rules)
            whole += sum(not record.gaps for record in extraction.records)
            damaged += sum(bool(record.gaps) for record in extraction.records)
            if console is None:
                print_json(_trace_json(trace, extraction))
            else:
                _print_trace(console, trace, extraction)
    if console is not None and number > 1:
        calls = f"{many(whole + damaged, 'RAG call')}: {whole} whole, {damaged} with gaps"
        console.print(f"{many(number, 'trace')}, {calls}", style="bold")
    if not number:
        talk("no spans: this is not a file of traces, or it is empty (for records: ragtrace evaluate)")


def _find(
    what: str, options: SourceOptions, config: CollectorConfig, faults: LeftOutRows
) -> tuple[TraceReader, str | None]:
    """Tell files from trace ids; return where to read, and the id if there is one.

    Raises:
        InputError: the argument is neither.
        ConfigError: the source is no address.
    """
    source = options.source
    if (match := _TRACE_ID.fullmatch(what)) and not Path(what).exists():
        source = source or (_STORE if options.config.path else _DEFAULT_SOURCE)
        # a collector's store keeps tenants apart: ID@TENANT
        return _open(source, options, config), f"{match[1].lower()}{match[2] or ''}"
    if source is not None:
        raise InputError(f"{what!r} is not a trace id: with --from, give 32 hex digits")
    from ragtrace.backends import OtlpFileReader

    path = what.removeprefix("otlp-file:")
    if not Path(path).is_file():
        raise InputError(f"{what!r} is neither a file nor a trace id of 32 hex digits")
    return OtlpFileReader(path, on_fault=faults.row_refused), None


async def _one(reader: TraceReader, trace_id: str, source: str | None) -> AsyncIterator[Trace]:
    try:
        trace = await reader.get(trace_id)
    except ReadError as exc:
        if source is not None:
            raise
        hint = "name where the trace is with --from jaeger:URL or --from store:PATH"
        raise ReadError(f"{exc}: {hint}") from exc
    if trace is None:
        raise ReadError(f"{source or 'the source'} has no trace {trace_id}")
    yield trace


def _open(source: str, options: SourceOptions, config: CollectorConfig) -> TraceReader:
    kind, _, rest = source.partition(":")
    if kind != _STORE:
        from ragtrace.backends import open_reader

        return open_reader(source, access=access(options.headers))
    from ragtrace_collector.store.open import open_reading

    return open_reading(config.store.at(rest) if rest else config.store).reader


def _trace_json(trace: Trace, extraction: Extraction) -> dict[str, object]:
    unread = extraction.unread
    return {
        "trace_id": trace.trace_id,
        "spans": len(trace.spans),
        "records": [_record_json(record) for record in extraction.records],
        "notes": [asdict(note) for note in extraction.notes],
        "unread": unread
        and {**asdict(unread), "mapping": {part: [path] for part, path in unread.mapping.items()}},
    }


def _record_json(record: RagRecord) -> dict[str, object]:
    from ragtrace.answers.rows import to_json

    told: dict[str, Any] = json.loads(to_json(record))
    shown = [_shown_chars(record, chunk) for chunk in record.chunks]
    chunks = zip(told.pop("chunks"), shown, strict=True)
    return {**told, "contexts": [{**chunk, "shown_chars": chars} for chunk, chars in chunks]}


def _print_trace(console: Console, trace: Trace, extraction: Extraction) -> None:
    console.print(f"trace {trace.trace_id} ({many(len(trace.spans), 'span')})", style="bold")
    for record in extraction.records:
        _print_record(console, record)
    for line in _note_lines(extraction.notes):
        print_indented(console, 2, f"note: {line}")
    console.print()


def _print_record(console: Console, record: RagRecord) -> None:
    from ragtrace.model import Part

    console.print()
    where = record.target
    target = f", target span {one_line(where.name)!r} ({where.span_id})" if where else ""
    print_indented(console, 2, f"RAG call{target}", style="bold")
    facts = {
        "model": record.model,
        "session": record.session_id,
        "conversation": record.conversation_id,
        "query": record.retrieval_query,
    }
    if told := ", ".join(f"{name} {_short(value)}" for name, value in facts.items() if value):
        print_indented(console, 4, told, style="dim")
    for part in Part:
        for indent, line in _value_lines(record, part):
            print_indented(console, indent, line)
        for indent, line in _reason_lines(record, part):
            print_indented(console, indent, line, style="dim")
        for gap in record.gaps:
            if gap.part is part:
                print_indented(console, 6, f"gap, {gap.reason}: {one_line(gap.detail)}", style="yellow")


def _reason_lines(record: RagRecord, part: Part) -> Iterator[tuple[int, str]]:
    """Yield where a part is from and why, then what was passed over, by rule."""
    places: dict[Provenance, list[str]] = {}
    for found in record.provenance:
        if found.part is part:
            places.setdefault(replace(found, span_id=""), []).append(found.span_id)
    for found, span_ids in places.items():
        span = f"span {one_line(found.span_name)!r} ({', '.join(span_ids)})"
        yield 6, f"from {span}, {one_line(found.attribute)} [{found.convention}]: {one_line(found.why)}"
    names: dict[str, list[str]] = {}
    for found in record.passed_over:
        if found.part is part:
            names.setdefault(found.why, []).append(f"{one_line(found.span_name)!r}")
    for why, spans in names.items():
        yield 6, f"not from {_several(spans)}: {why}"


def _several(names: Sequence[str]) -> str:
    counted = [f"{name} ({count}x)" if count > 1 else name for name, count in Counter(names).items()]
    rest = len(counted) - _SHOWN_SPANS
    return ", ".join(counted[:_SHOWN_SPANS]) + (f" and {many(rest, 'other')}" if rest > 0 else "")


def _value_lines(record: RagRecord, part: Part) -> Iterator[tuple[int, str]]:
    """Yield the lines that show a part, each with its indent."""
    from ragtrace.model import Part

    if part is Part.CONTEXT:
        yield _PART_INDENT, f"{part}: {many(len(record.chunks), 'chunk') if record.chunks else 'missing'}"
        for chunk in record.chunks[:_SHOWN_CHUNKS]:
            yield _CHUNK_INDENT, f"- {one_line(chunk.id)}: {_short(chunk.text or '(no text)')}"
            if (shown := _shown_chars(record, chunk)) is not None:
                how_much = f"only its first {many(shown, 'character')}" if shown else "not"
                yield _CHUNK_INDENT + 2, f"{how_much} in the model's prompt"
        if (more := len(record.chunks) - _SHOWN_CHUNKS) > 0:
            yield _CHUNK_INDENT, f"- and {many(more, 'other')}: --json shows all"
        return
    texts = {Part.QUESTION: record.question, Part.ANSWER: record.answer, Part.REFERENCE: record.reference}
    text = texts[part]
    if text is not None or part is not Part.REFERENCE:
        yield _PART_INDENT, f"{part}: {'missing' if text is None else _short(text)}"
    if part is Part.ANSWER and record.provider_citations:
        yield 6, f"{_citations(record)} beside it, of the model's provider"


def _citations(record: RagRecord) -> str:
    told = many(len(record.provider_citations), "citation")
    unplaced = sum(each.start is None for each in record.provider_citations)
    missing = sum(not each.chunk_ids for each in record.provider_citations)
    facts = {"of a part that the answer does not have": unplaced, "of a source that is no chunk": missing}
    found = [f"{number} {what}" for what, number in facts.items() if number]
    return f"{told} ({', '.join(found)})" if found else told


def _shown_chars(record: RagRecord, chunk: Chunk) -> int | None:
    """Return how much of a chunk the model was shown; ``None`` if all of it, or if no prompt tells."""
    return record.hops.shown.get(chunk.id) if record.hops else None


def _note_lines(notes: Sequence[ExtractionNote]) -> Iterator[str]:
    """Say once what holds for many spans."""
    spans: dict[str, list[ExtractionNote]] = {}
    for note in notes:
        spans.setdefault(note.text, []).append(note)
    for text, (first, *others) in spans.items():
        more = f" and {many(len(others), 'other')}" if others else ""
        who = f"span {one_line(first.span_name or '')!r} ({first.span_id}){more} " if first.span_id else ""
        yield f"{who}{one_line(text)}"


def _short(text: str) -> str:
    line = one_line(text[: _SHOWN_CHARS * 4])
    if len(line) <= _SHOWN_CHARS and len(text) <= _SHOWN_CHARS * 4:
        return line
    return f"{line[:_SHOWN_CHARS]}… ({len(text)} characters)"
