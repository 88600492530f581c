"""What was judged once is found out again from the transcript, without a call."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from pydantic import BaseModel

from ragtrace.judge import ScriptedJudge
from ragtrace.judge_forms import VerifyReply
from ragtrace.metrics import StepLimits
from ragtrace.model import (
    Evaluation,
    MetricFailure,
    MetricResult,
    RagRecord,
)
from ragtrace.pipeline import evaluate
from ragtrace.ports import Judge, JudgeReply, JudgeRequest
from ragtrace.transcripts import (
    RescoredRecord,
    TranscriptRecord,
    Transcripts,
    recorded,
    rescore,
)
from tests.checkout import ROOT
from tests.patience import PATIENCE_S
from tests.unit.metrics.test_laws import METRICS, RECORD, judges, limits

FIRST = RagRecord.of(
    question="How long?",
    contexts={"faq": "Refunds take 14 days."},
    answer="Refunds take 14 days. Refunds take 30 days.",
    id="first",
)
SECOND = replace(FIRST, id="second", answer="Refunds take 14 days.")


@pytest.fixture
def transcripts(tmp_path: Path) -> Iterator[Transcripts]:
    with Transcripts(tmp_path / "judged.db") as opened:
        yield opened


async def judged(
    transcripts: Transcripts,
    *records: RagRecord,
    judge: Judge | None = None,
    metrics: Sequence[str] = ("faithfulness",),
    **options: Any,
) -> list[Evaluation]:
    judge = recorded(judge or ScriptedJudge(), transcripts)
    evaluations = [await evaluate(each, metrics=metrics, judge=judge, **options) for each in records]
    for record, evaluation in zip(records, evaluations, strict=True):
        told = {"limits": options.get("limits", StepLimits()), "session": transcripts.session}
        transcripts.keep(TranscriptRecord(record=record, evaluation=evaluation, **told))
    return evaluations


async def again(transcripts: Transcripts, **options: Any) -> list[RescoredRecord]:
    kept = transcripts.of(transcripts.evaluators()[0])
    return [each async for each in rescore(kept, transcripts, **options)]


def timeless(evaluation: Evaluation) -> Evaluation:
    return replace(evaluation, run_id="", started_at_ns=0, duration_ms=0)


@settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(judges, limits)
def test_whatever_a_judge_said_the_same_evaluator_finds_the_same(
    judge: ScriptedJudge, limits: StepLimits
) -> None:
    async def law(path: Path) -> None:
        with Transcripts(path) as transcripts:
            (first,) = await judged(transcripts, RECORD, judge=judge, metrics=METRICS, limits=limits)
            calls = len(judge.requests)
            (found,) = await again(transcripts)
            for was, now in zip(first.outcomes, found.after.evaluation.outcomes, strict=True):
                assert now == was if isinstance(was, MetricResult) else isinstance(now, MetricFailure)
            if not first.failures:  # where one call fails, others are given up half-way
                assert timeless(found.after.evaluation) == timeless(first)
            assert not found.asks_anew
            assert (found.before.record, found.before.evaluation) == (RECORD, first)
            assert len(judge.requests) == calls

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(law(Path(folder) / "judged.db"))


async def test_what_a_second_run_said_is_not_mixed_with_the_first(tmp_path: Path) -> None:
    plain, says = ScriptedJudge(), ["supported", "contradicted"]

    def answer(request: JudgeRequest[Any]) -> BaseModel | JudgeReply[Any]:
        if request.step == "extract":
            return plain.reply_to(request)
        return VerifyReply.model_validate(
            {"verdicts": [{"id": 1, "label": says[0], "chunks": [1], "quote": "", "reason": ""}]}
        )

    for _ in range(2):
        with Transcripts(tmp_path / "judged.db") as transcripts:
            (last,) = await judged(transcripts, SECOND, judge=ScriptedJudge(answer))
        says.pop(0)
    with Transcripts(tmp_path / "judged.db") as transcripts:
        (found,) = await again(transcripts)
    assert last.results[0].score == 0
    assert timeless(found.after.evaluation) == timeless(last)


async def test_a_full_disk_costs_the_transcript_and_not_the_verdict(
    transcripts: Transcripts, caplog: pytest.LogCaptureFixture
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, hard))
    try:
        many = [replace(FIRST, id=f"{number:x}" * 500) for number in range(40)]
        found = await judged(transcripts, *many)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not transcripts.is_whole
    assert {each.results[0].score for each in found} == {0.5}
    assert [each.message.count("can no longer be written") for each in caplog.records] == [1]


GIVE_UP = """
import asyncio, sys
from pathlib import Path
from ragtrace.backfill.progress import Progress
from ragtrace.transcripts import Transcripts
from ragtrace.transcripts import TranscriptReply

async def keep(transcripts, number):
    said = TranscriptReply(body=b"x" * 10_000, usage=b"{}")
    await transcripts.keep_said(bytes([number]), said)

async def given_up(folder):
    with Transcripts(folder / "judged.db") as transcripts, Progress(folder / "progress.db") as progress:
        writes = [keep(transcripts, number) for number in range(8)]
        writes += [progress.keep(str(number), "a", b"x" * 10_000) for number in range(8)]
        tasks = [asyncio.create_task(write) for write in writes]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()

for number in range(20):
    asyncio.run(given_up(Path(sys.argv[1])))
"""


@pytest.mark.slow
def test_what_is_cancelled_while_it_writes_does_not_crash_the_program(tmp_path: Path) -> None:
    command = [sys.executable, "-c", GIVE_UP, str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (run.returncode, run.stderr) == (0, "")
