"""Answers found by searching a place for carriers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ragtrace.answer_sources import SearchProgress, find_answers
from ragtrace.answers.summary import AnswerSummary, key_of
from ragtrace.model import JudgedAnswer, Label, RagRecord, Sample, VerdictLabel
from ragtrace.reports import RunEnd, RunInfo, open_report
from ragtrace.traces.attach import AttachOptions, add_to_spans, addition_of, carrier
from ragtrace.traces.extract import extract_records
from ragtrace.traces.otlp import decode, encode, encode_json
from ragtrace.traces.trace import Span, Trace
from tests.rag_spans import START_NS, rag_trace
from tests.unit.traces.builders import a_claim, a_result, an_evaluation

DAY_NS = 86_400 * 10**9
BAD = an_evaluation(a_result(a_claim(0, VerdictLabel.CONTRADICTED)))
SAMPLE = Sample(rule="ratio", rate=0.5, probability=0.5)


def the_record(spans: tuple[Span, ...]) -> RagRecord:
    (record,) = extract_records(Trace.of(spans[0].trace_id, spans)).records
    return record


def judged_trace(number: int, *, service: str = "shop", mode: str = "append") -> tuple[Span, ...]:
    spans = rag_trace(number, service=service, start_ns=START_NS + number * 10**9)
    record = the_record(spans)
    made = carrier(
        BAD,
        record,
        sample=SAMPLE,
        options=AttachOptions(),
        now_ns=spans[0].end_ns,
        mode="hold" if mode == "hold" else "append",
    )
    if mode == "append":
        return (*spans, made)
    added = add_to_spans(encode(spans), {made.parent_span_id or "": addition_of(made)})
    return decode(added)


async def found(
    address: str, *, since_ns: int = START_NS - DAY_NS, until_ns: int = START_NS + DAY_NS, **options: Any
) -> tuple[list[AnswerSummary], SearchProgress]:
    told: list[SearchProgress] = []
    summaries = [
        summary
        async for summary in find_answers(
            address, since_ns=since_ns, until_ns=until_ns, on_progress=told.append, **options
        )
    ]
    return summaries, told[-1]


def a_file(folder: Path, *traces: tuple[Span, ...], more: str = "") -> str:
    path = folder / "traces.jsonl"
    path.write_text("\n".join([*map(encode_json, traces), more]))
    return f"file:{path}"


async def test_file_is_searched_for_carriers_of_both_modes(tmp_path: Path) -> None:
    address = a_file(
        tmp_path,
        judged_trace(1),
        judged_trace(2, mode="hold"),
        judged_trace(3, service="other"),
        rag_trace(4),
    )
    summaries, progress = await found(address)
    keys = {key_of(the_record(rag_trace(number))) for number in (1, 2, 3)}
    assert {summary.key for summary in summaries} == keys
    assert {summary.label for summary in summaries} == {Label.FAIL}
    assert {summary.claims.contradicted for summary in summaries} == {1}
    assert [summary.time_ns for summary in summaries] == [START_NS + number * 10**9 for number in (1, 2, 3)]
    assert (progress.traces, progress.answers, progress.is_done, progress.notices) == (4, 3, True, ())
    summaries, _ = await found(address, service="other")
    assert [summary.service for summary in summaries] == ["other"]
    summaries, _ = await found(address, since_ns=START_NS + DAY_NS, until_ns=START_NS + 2 * DAY_NS)
    assert summaries == []


async def test_part_of_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    address = a_file(tmp_path, judged_trace(1), judged_trace(2), more='{"resourceSpans": 7}')
    summaries, progress = await found(address)
    assert (len(summaries), progress.unread, progress.is_done) == (2, 1, True)
    assert "Traces or parts of files (1) cannot be read, the first: " in progress.notices[0]
    assert "traces.jsonl" in progress.notices[0]


async def test_report_is_searched_by_the_time_of_its_answers(tmp_path: Path) -> None:
    path = tmp_path / "report.jsonl"
    about = RunInfo(source="a test", judge="openai:gpt", metrics=("faithfulness",), began_at_ns=0)
    writer = open_report(path, about)
    for number in range(3):
        record = the_record(rag_trace(number, start_ns=START_NS + number * DAY_NS))
        writer.add(JudgedAnswer(record=record, evaluation=BAD, sample=SAMPLE))
    writer.close(RunEnd())
    path.write_bytes(path.read_bytes() + b'{"version": 1, "record')
    summaries, progress = await found(f"file:{path}", since_ns=START_NS, until_ns=START_NS + 2 * DAY_NS)
    assert [summary.time_ns for summary in summaries] == [START_NS, START_NS + DAY_NS]
    assert {summary.key.trace_id for summary in summaries} == {
        rag_trace(0)[0].trace_id,
        rag_trace(1)[0].trace_id,
    }
    assert (progress.unread, progress.is_done) == (1, True)
    assert "line 4: is not JSON" in progress.first_fault
