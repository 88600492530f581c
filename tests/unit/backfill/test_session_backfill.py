"""Sessions at the end of a run that searches, stops, pilots or has no place to keep turns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ragtrace import semconv
from ragtrace.backends import MemorySink
from ragtrace.backfill import Progress, ResumableRun, Selection, backfill, dry_run
from ragtrace.conversations import SessionSettings
from ragtrace.errors import ConfigError
from ragtrace.judge import ScriptedJudge
from ragtrace.metrics import metric_named
from ragtrace.model import JudgedAnswer
from ragtrace.pipeline import Evaluator
from ragtrace.ports import Page, TraceQuery
from ragtrace.traces.trace import Span, Trace
from tests.unit.backfill.stored_traces import RIGHT, WRONG, StoredTraces, rag_trace

EVALUATOR = Evaluator(metrics=(metric_named("faithfulness"),), judge=ScriptedJudge())
SETTINGS = SessionSettings()
HOUR_NS = 3_600 * 10**9


def turns(number: int = 4) -> list[Trace]:
    """Return the turns of a session, alternately right and wrong."""
    made = []
    for place in range(number):
        trace = rag_trace(place, RIGHT if place % 2 == 0 else WRONG)
        spans = [
            replace(span, attributes={**span.attributes, semconv.SESSION_ID: "chat"}) for span in trace.spans
        ]
        made.append(Trace.of(trace.trace_id, spans))
    return made


class SearchedTraces(StoredTraces):
    """A reader that searches by time, as a back end does."""

    shortest_ns = 1
    longest_ns = 10 * HOUR_NS

    async def search(self, query: TraceQuery) -> Page:
        found = {
            trace_id: trace
            for trace_id, trace in self._traces.items()
            if query.since_ns <= trace.spans[0].start_ns < query.until_ns
        }
        return Page.of(found, limit=100)


def sessions_in(sink: MemorySink) -> list[Span]:
    return [span for span in sink.spans if span.name.startswith(semconv.SESSION_SPAN)]


def searched(stored: list[Trace]) -> Selection:
    first_ns = stored[0].spans[0].start_ns
    return Selection(query=TraceQuery(since_ns=first_ns - HOUR_NS, until_ns=first_ns + 2 * HOUR_NS))


async def test_a_search_has_reached_its_end_once_its_sessions_are_judged(tmp_path: Path) -> None:
    stored, sink = turns(), MemorySink()
    selection = searched(stored)
    assert selection.query is not None
    with Progress(tmp_path / "progress.db") as progress:
        run = ResumableRun(progress=progress, name="r")
        progress.begin("r", since_ns=selection.query.since_ns, until_ns=selection.query.until_ns)
        report = await backfill(
            SearchedTraces(*stored),
            sink,
            evaluator=EVALUATOR,
            selection=selection,
            run=run,
            sessions=SETTINGS,
        )
        assert progress.unfinished("r") is None
    assert (report.sessions, report.sessions_left, report.sent) == ({"fail": 1}, 0, 5)
    assert [span.attributes[semconv.SESSION_TURNS] for span in sessions_in(sink)] == [4]


async def test_a_run_that_is_stopped_leaves_its_sessions_to_the_one_that_goes_on(tmp_path: Path) -> None:
    stored, sink = turns(), MemorySink()
    selection = searched(stored)
    assert selection.query is not None
    with Progress(tmp_path / "progress.db") as progress:
        progress.begin("r", since_ns=selection.query.since_ns, until_ns=selection.query.until_ns)
        stopped = ResumableRun(progress=progress, name="r")

        def stop(answer: JudgedAnswer) -> None:
            stopped.stop.set()

        first = await backfill(
            SearchedTraces(*stored),
            sink,
            evaluator=EVALUATOR,
            selection=selection,
            run=stopped,
            sessions=SETTINGS,
            on_evaluated=stop,
            concurrency=1,
        )
        assert (first.is_stopped, first.sessions, first.sessions_left) == (True, {}, 1)
        assert progress.unfinished("r") is not None
        again = ResumableRun(progress=progress, name="r")
        second = await backfill(
            SearchedTraces(*stored),
            sink,
            evaluator=EVALUATOR,
            selection=selection,
            run=again,
            sessions=SETTINGS,
        )
    assert first.judged + second.judged == 4
    assert second.sessions == {"fail": 1}
    assert [span.attributes[semconv.SESSION_TURNS] for span in sessions_in(sink)] == [4]


async def test_answers_of_a_pilot_are_turns_too(tmp_path: Path) -> None:
    stored, sink = turns(8), MemorySink()
    with Progress(tmp_path / "progress.db") as progress:
        run = ResumableRun(progress=progress, name="r")
        preview = await dry_run(
            StoredTraces(*stored), evaluator=EVALUATOR, pilot=5, run=run, sessions=SETTINGS
        )
        report = await backfill(StoredTraces(*stored), sink, evaluator=EVALUATOR, run=run, sessions=SETTINGS)
    assert (preview.pilot.judged, report.judged) == (5, 3)
    [span] = sessions_in(sink)
    assert span.attributes[semconv.SESSION_TURNS] == 8
    assert span.attributes[semconv.SESSION_UNCHECKED] == 0


async def test_sessions_need_a_run_that_keeps_their_turns() -> None:
    with pytest.raises(ConfigError, match="give `run`"):
        await backfill(StoredTraces(*turns()), MemorySink(), evaluator=EVALUATOR, sessions=SETTINGS)
