"""Sessions in ``ragtrace backfill``: what a collector says of the same answers, and nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from ragtrace import semconv
from ragtrace.traces.otlp import encode_json
from ragtrace.traces.trace import Span
from ragtrace_collector.config import load_config
from tests.integration.cli.program import json_lines, run
from tests.integration.collector.running import carriers_in
from tests.integration.collector.stepping import stepped_collector
from tests.likely_judge import LIKELY
from tests.rag_spans import START_NS, rag_trace

pytestmark = pytest.mark.slow  # a judge's or a back end's server

MINUTE_NS = 60 * 10**9
FACTS = "Refunds take 14 days. Shipping takes 3 days."
GOOD, OPPOSITE, INVENTED = "Refunds take 14 days.", "Refunds take 30 days.", "Refunds need a blue form."


def turn(
    number: int,
    answer: str = GOOD,
    *,
    session: str = "chat-1",
    chunks: Sequence[str] = (FACTS,),
    minute: float | None = None,
    tenant: str = "",
) -> tuple[Span, ...]:
    """Return the spans of a turn of a session; turns are a minute apart."""
    start_ns = START_NS + int((number if minute is None else minute) * MINUTE_NS)
    spans = rag_trace(number, answer=answer, chunks=chunks, start_ns=start_ns)
    of_tenant = {semconv.TENANT: tenant} if tenant else {}
    return tuple(
        replace(
            span,
            attributes={**span.attributes, semconv.SESSION_ID: session},
            resource=replace(span.resource, attributes={**span.resource.attributes, **of_tenant}),
        )
        for span in spans
    )


TOLD = (
    turn(0, GOOD),
    turn(1, INVENTED),
    turn(2, OPPOSITE, chunks=["Refunds take 30 days."]),
    turn(3, INVENTED),
)


@dataclass(frozen=True)
class Place:
    """A folder with stored traces, a collector's configuration, and what back-fills wrote."""

    folder: Path
    judge: str = ""

    @property
    def config(self) -> Path:
        (self.folder / "script.json").write_text("{}")
        settings: dict[str, Any] = {
            "receive": {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0"},
            "assemble": {"quiet_period": "5s", "deadline": "60s", "linger": "10s"},
            "judge": {"use": self.judge or f"scripted:{self.folder / 'script.json'}"},
            "evaluate": {"metrics": ["faithfulness"]},
            "attach": {"carrier_time": "target"},
            "sessions": {"enabled": True, "idle": "10m", "max_length": "1h"},
            "export": [{"endpoint": f"otlp-file:{self.folder / 'live.jsonl'}"}],
            "store": {"path": str(self.folder / "store.db")},
        }
        path = self.folder / "collector.yaml"
        path.write_text(yaml.safe_dump(settings))
        return path

    @property
    def out(self) -> Path:
        return self.folder / "out.jsonl"

    def live(self, *turns: Sequence[Span]) -> list[Span]:
        """Send turns to a collector, and return the spans of their sessions."""
        return asyncio.run(self._live(turns))

    async def _live(self, turns: Sequence[Sequence[Span]]) -> list[Span]:
        async with stepped_collector(load_config(self.config, environ={})) as stepped:
            for spans in turns:
                await stepped.send(*spans)
                await stepped.pass_time(5)
            await stepped.pass_time(601)
            return sessions_in(stepped.carriers())

    def backfilled(
        self, *turns: Sequence[Span], options: Sequence[str] = (), exit_code: int = 0
    ) -> Mapping[str, Any]:
        """Judge stored turns, and return the report."""
        source = self.folder / "traces.jsonl"
        source.write_text("".join(f"{encode_json(spans)}\n" for spans in turns))
        where = ("--from", f"otlp-file:{source}", "--to", f"otlp-file:{self.out}", "--yes", "--json")
        progress = ("--progress", str(self.folder / "progress.db"), "--config", str(self.config))
        result = run("backfill", *where, *progress, *options)
        assert result.exit_code == exit_code, result.output
        return json_lines(result.stdout)[-1]

    def sessions(self) -> list[Span]:
        return sessions_in(carriers_in(self.out))


def sessions_in(spans: Sequence[Span]) -> list[Span]:
    return [span for span in spans if span.name.startswith(semconv.SESSION_SPAN)]


def number(span: Span, name: str) -> Any:
    return span.attributes[f"ragtrace.session.{name}"]


def test_live_traffic_and_back_fill_say_the_same_of_a_session(tmp_path: Path) -> None:
    place = Place(tmp_path)
    [live] = place.live(*TOLD)
    report = place.backfilled(*(TOLD[each] for each in (3, 1, 0, 2)))
    [stored] = place.sessions()
    assert stored == live
    assert (number(stored, "contradictions"), number(stored, "repeated_claims")) == (1, 1)
    assert (report["sessions"], report["sessions_open"]) == ({"fail": 1}, 0)


def test_a_second_run_and_a_collectors_span_are_not_judged_again(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.backfilled(*TOLD)
    written = place.out.read_bytes()
    again = place.backfilled(*TOLD)
    assert (again["sessions"], again["sessions_known"], again["usage"]["calls"]) == ({}, 1, 0)
    assert place.out.read_bytes() == written
    other = Place(tmp_path / "other")
    other.folder.mkdir()
    other.live(*TOLD)
    stored = [[*spans, *added_to(spans, other.folder / "live.jsonl")] for spans in TOLD]
    beside = other.backfilled(*stored)
    assert (beside["already_evaluated"], beside["sessions_known"], beside["sent"]) == (4, 1, 0)
    assert beside["usage"]["calls"] == 0


def added_to(spans: Sequence[Span], file: Path) -> list[Span]:
    """Return what a collector added to a trace."""
    return [span for span in carriers_in(file) if span.trace_id == spans[0].trace_id]


def test_a_late_turn_revises_the_session_from_what_is_in_its_traces(tmp_path: Path) -> None:
    place = Place(tmp_path)
    late = TOLD[1]
    [first] = place.live(TOLD[0], TOLD[2], TOLD[3])
    stored = [[*spans, *added_to(spans, tmp_path / "live.jsonl")] for spans in (TOLD[0], TOLD[2], TOLD[3])]
    report = place.backfilled(*stored, late)
    [second] = place.sessions()
    assert (report["already_evaluated"], report["judged"]) == (3, 1)
    assert second.attributes[semconv.SESSION_SUPERSEDES] == first.span_id
    assert (number(second, "turns"), number(second, "faithful")) == (4, 2)
    assert (number(second, "contradictions"), number(second, "repeated_claims")) == (1, 1)


def test_one_id_of_two_tenants_is_two_sessions_as_in_the_collector(tmp_path: Path) -> None:
    place = Place(tmp_path)
    turns = (turn(0, GOOD, tenant="a"), turn(1, INVENTED, tenant="b"))
    live = place.live(*turns)
    place.backfilled(*turns)
    assert {span.span_id for span in place.sessions()} == {span.span_id for span in live}
    assert [number(span, "turns") for span in place.sessions()] == [1, 1]


def test_a_session_that_is_not_over_waits_for_a_later_run(tmp_path: Path) -> None:
    place = Place(tmp_path)
    end = ("--since", "2025-10-01", "--until", moment(minute=12))
    early = place.backfilled(*TOLD, options=end)
    assert (early["sessions_open"], place.sessions()) == (1, [])
    report = place.backfilled(turn(4, GOOD, minute=13), options=("--since", moment(minute=12)))
    [span] = place.sessions()
    assert (report["records"], number(span, "turns")) == (1, 5)
    assert number(span, "contradictions") == 1


def moment(*, minute: int) -> str:
    """Return a time after the first turn."""
    at = datetime.fromtimestamp(START_NS / 1e9 + 60 * minute, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_texts_are_deleted_once_no_late_turn_is_expected(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.backfilled(*TOLD)
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("progress.db*"))
    assert b"chat-1" in kept
    assert b"blue form" not in kept
    revised = place.backfilled(*TOLD, turn(4, GOOD))
    *_, span = place.sessions()
    assert (revised["judged"], number(span, "turns"), number(span, "unchecked")) == (1, 5, 4)
    assert span.attributes[semconv.SESSION_FAITHFUL] == 3


def test_a_spent_budget_leaves_sessions_and_a_higher_one_finishes_them(tmp_path: Path) -> None:
    place = Place(tmp_path, judge=f"{LIKELY}base")
    report = place.backfilled(*TOLD, options=("--max-calls", "9"), exit_code=3)
    assert (report["judged"], report["sessions_left"], report["usage"]["calls"]) == (4, 1, 9)
    resumed = place.backfilled(*TOLD, options=("--max-calls", "11", "--resume"))
    assert (resumed["already_evaluated"], resumed["sessions"]) == (4, {"fail": 1})
    assert resumed["usage"]["calls"] == 2
