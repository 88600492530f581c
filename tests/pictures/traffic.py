"""Two weeks of the demo's traffic: recorded once, and sent again under other dates."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from time import time_ns

from ragtrace import semconv
from ragtrace.answers.carrier import target_span_id
from ragtrace.backends import open_sink
from ragtrace.cli.demo_run import (
    PEOPLE_JUDGE,
    PEOPLE_NAME,
    Backend,
    choose_port,
    running_collectors,
    wait_for_page,
)
from ragtrace.traces.otlp import decode_json, encode
from ragtrace.traces.trace import Span
from tests.backends.process import eventually
from tests.pictures.browser import Picture

_DAY_NS = 86_400 * 10**9
_DAYS = 14
_MINUTE_NS = 60 * 10**9
_A_DAY = 40
_BAD_DAY = 3
"""Days ago."""
_USUAL, _BAD = 0.12, 0.6
"""Shares of flawed answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One answer of the demo, as its application sent it."""

    spans: Sequence[Span]
    is_faithful: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFortnight:
    """What is worth a picture."""

    pictures: Sequence[Picture]


@contextmanager
def running_fortnight(folder: Path, backend: Backend | None) -> Iterator[ShownFortnight]:
    """Run a collector that judged two weeks of traffic, until the block ends; a back end gets it, too."""
    recorded = _record(folder)
    port = choose_port()
    (folder / "traces").mkdir()
    judges = {PEOPLE_NAME: PEOPLE_JUDGE}
    with running_collectors(folder, judges, backend, page_port=port) as collectors:
        verdicts: dict[str, Span] = {}
        sent = asyncio.run(_send(recorded, collectors.address, Random(18)))
        last = asyncio.run(_send_one(_worth_a_look(recorded), collectors.address))
        file = collectors.verdicts[PEOPLE_NAME]

        def all_are_judged() -> bool:
            verdicts.update({verdict.trace_id: verdict for verdict in file.new()})
            return len(verdicts) == sent + 1

        eventually(all_are_judged, what="a verdict on every answer", deadline_s=120)
        wrong = verdicts[last]
        page = f"http://127.0.0.1:{port}"
        answer = f"{page}/answers/{last}/{target_span_id(wrong)}"
        wait_for_page(answer)
        yield ShownFortnight(
            pictures=[
                Picture(name="answer.png", url=answer, height=820),
                Picture(name="overview.png", url=f"{page}/?since=14d", height=1010),
                *([_in_jaeger(backend, wrong)] if backend else []),
            ]
        )


def _in_jaeger(backend: Backend, wrong: Span) -> Picture:
    """Return Jaeger's page of a trace, with the wrong claim open."""
    url = f"{backend.ui}/trace/{wrong.trace_id}?uiFind={wrong.span_id}"
    return Picture(name="verdict-in-jaeger.png", url=url, height=900, clicks=_OPENS_CLAIM)


_OPENS_CLAIM = (".AccordianLogs--content .AccordianKeyValues--header >> nth=1",)


def _record(folder: Path) -> Sequence[Recorded]:
    file = folder / "recorded.jsonl"
    command = [sys.executable, "-m", "ragtrace.cli", "demo", "--json", "--to", f"otlp-file:{file}"]
    finished = subprocess.run(command, check=True, capture_output=True, text=True)
    *answers, _ = map(json.loads, finished.stdout.splitlines())
    faithful: Mapping[str, bool] = {answer["trace_id"]: answer["human"]["faithful"] for answer in answers}
    spans: dict[str, dict[str, Span]] = {trace_id: {} for trace_id in faithful}
    for line in file.read_text("utf-8").splitlines():
        for span in decode_json(line):
            if semconv.EVAL_STATUS not in span.attributes:
                spans[span.trace_id][span.span_id] = span
    return [
        Recorded(spans=[*spans[trace_id].values()], is_faithful=is_faithful)
        for trace_id, is_faithful in faithful.items()
    ]


async def _send(recorded: Sequence[Recorded], address: str, chance: Random) -> int:
    flawed = [answer for answer in recorded if not answer.is_faithful]
    clean = [answer for answer in recorded if answer.is_faithful]
    sink, sent, now = open_sink(address.replace("http://", "grpc://")), 0, time_ns()
    for days_ago in reversed(range(_DAYS)):
        share = _BAD if days_ago == _BAD_DAY else _USUAL
        for _ in range(_A_DAY):
            answer = chance.choice(flawed if chance.random() < share else clean)
            begins = now - days_ago * _DAY_NS - chance.randrange(_DAY_NS)
            await sink.send(encode(_dated(answer.spans, begins, f"{chance.getrandbits(128):032x}")))
            sent += 1
    await sink.aclose()
    return sent


async def _send_one(answer: Recorded, address: str) -> str:
    """Send an answer of this minute: its verdict is beside it in Jaeger's timeline."""
    trace_id = f"{0xBAD:032x}"
    sink = open_sink(address.replace("http://", "grpc://"))
    await sink.send(encode(_dated(answer.spans, time_ns() - _MINUTE_NS, trace_id)))
    await sink.aclose()
    return trace_id


def _dated(spans: Sequence[Span], begins_ns: int, trace_id: str) -> Sequence[Span]:
    shift = begins_ns - min(span.start_ns for span in spans)
    return [
        replace(span, trace_id=trace_id, start_ns=span.start_ns + shift, end_ns=span.end_ns + shift)
        for span in spans
    ]


def _worth_a_look(recorded: Sequence[Recorded]) -> Recorded:
    return next(
        answer
        for answer in recorded
        if not answer.is_faithful and any("Gemini" in str(span.attributes) for span in answer.spans)
    )
