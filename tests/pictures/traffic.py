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
from ragtrace.backends import open_sink
from ragtrace.cli.demo.page import DemoPage, choose_port
from ragtrace.cli.demo.people import PEOPLE_JUDGE, PEOPLE_NAME
from ragtrace.cli.demo.process import DemoJudge, running_collectors
from ragtrace.cli.demo.verdicts import TraceVerdict, VerdictFile
from ragtrace.traces.otlp import decode_json, encode
from ragtrace.traces.trace import Span
from tests.backends.process import eventually
from tests.pictures.browser import Picture

_DAY_NS = 86_400 * 10**9
_DAYS = 14
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
def running_fortnight(folder: Path) -> Iterator[ShownFortnight]:
    """Run a collector that judged two weeks of traffic, until the block ends."""
    recorded = _record(folder)
    page = DemoPage(port=choose_port(), links={})
    judge = DemoJudge(name=PEOPLE_NAME, use=PEOPLE_JUDGE, verdicts=folder / "verdicts.jsonl")
    with running_collectors(folder, [judge], None, page) as collectors:
        verdicts: dict[str, TraceVerdict] = {}
        sent = asyncio.run(_send(recorded, collectors.address, Random(18)))
        file = VerdictFile(judge.verdicts)

        def all_are_judged() -> bool:
            verdicts.update({verdict.trace_id: verdict for verdict in file.new()})
            return len(verdicts) == sent

        eventually(all_are_judged, what="a verdict on every answer", deadline_s=120)
        wrong = _worth_a_look(verdicts)
        answer = page.url_of(wrong.trace_id, wrong.span_id)
        if fault := page.fault(answer):
            raise RuntimeError(f"{answer}: {fault}")
        yield ShownFortnight(
            pictures=[
                Picture(name="answer.png", url=answer, height=820),
                Picture(name="overview.png", url=page.url, height=820),
            ]
        )


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
            begins = now - days_ago * _DAY_NS - chance.randrange(_DAY_NS // 2)
            await sink.send(encode(_dated(answer.spans, begins, f"{chance.getrandbits(128):032x}")))
            sent += 1
    await sink.aclose()
    return sent


def _dated(spans: Sequence[Span], begins_ns: int, trace_id: str) -> Sequence[Span]:
    shift = begins_ns - min(span.start_ns for span in spans)
    return [
        replace(span, trace_id=trace_id, start_ns=span.start_ns + shift, end_ns=span.end_ns + shift)
        for span in spans
    ]


def _worth_a_look(verdicts: Mapping[str, TraceVerdict]) -> TraceVerdict:
    """Return the last answer whose wrong claim is the demo's."""
    found = [
        verdict
        for verdict in verdicts.values()
        if any(claim.quote and "Gemini" in claim.quote for claim in verdict.findings)
    ]
    return found[-1]
