"""The collector with many metrics: one carrier an answer, and what is found stays found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragtrace import semconv
from ragtrace.errors import ConfigError
from ragtrace.traces.trace import Span
from ragtrace_collector.config import load_config
from ragtrace_collector.service.check import check_config
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    request_of,
    running_collector,
    send_grpc,
    until,
)
from tests.rag_spans import rag_trace

METRICS = [
    "faithfulness",
    "hallucination",
    "answer_relevance",
    "context_precision",
    "context_recall",
    "rag_score",
]
CHUNKS = ("Refunds take 14 days.", "The shop is open on Sundays.")
ANSWER = "Refunds take 30 days. The shop is open on Sundays."
AS_RAGAS = "evaluate: {metrics: [{name: faithfulness, profile: ragas, peer_prompts: true, options: {%s}}]}"
JUDGE = '''
from ragtrace.errors import JudgeNonsense, JudgeTimeout
from ragtrace.judge import ScriptedJudge


def open_it(settings):
    """Open a judge that fails on the reference {fails}, and is not to be asked for the claims twice."""
    said = ScriptedJudge()

    def answer(request):
        asked = judge.calls
        if request.step == "recall" and asked["recall"] <= {fails}:
            raise JudgeTimeout("the judge sleeps")
        if request.step == "extract" and asked["extract"] > 1:
            raise JudgeNonsense("asked twice")
        return said.reply_to(request)

    judge = ScriptedJudge(answer)
    return judge
'''


def answered(reference: str | None = "Refunds take 14 days. Cats purr.") -> tuple[Span, ...]:
    root, *others = rag_trace(0, chunks=CHUNKS, answer=ANSWER)
    given = {semconv.REFERENCE_ANSWER: reference} if reference else {}
    return (replace(root, attributes={**root.attributes, **given}), *others)


async def carrier_of(folder: Path, **changes: Any) -> Span:
    async with running_collector(config_of(folder, **changes)) as collector:
        await send_grpc(collector, request_of(*answered()))
        (carrier,) = await until(lambda: carriers_in(folder / "out.jsonl"))
    return carrier  # type: ignore[no-any-return]


async def test_six_metrics_stand_on_one_carrier_with_all_their_verdicts(tmp_path: Path) -> None:
    carrier = await carrier_of(tmp_path, evaluate={"metrics": METRICS})
    scores = {name: carrier.attributes[f"{semconv.SCORE_PREFIX}{name}"] for name in METRICS}
    assert {name: scores[name] for name in METRICS[:3]} == {
        "faithfulness": 0.5,
        "hallucination": 0.5,
        "answer_relevance": 1.0,
    }
    assert scores["context_recall"] == 0.5
    assert carrier.attributes[semconv.EVAL_STATUS] == "ok"
    assert carrier.attributes[semconv.COMPOSITE] == scores["rag_score"]
    names = [event.name for event in carrier.events]
    assert names[:6] == [semconv.EVALUATION_RESULT] * 6
    assert names.count("ragtrace.claim.contradicted") == 1
    assert names.count("ragtrace.reference.unsupported") == 1
    assert sum(name.startswith("ragtrace.chunk.") for name in names) == len(CHUNKS)


def judge_that_fails(folder: Path, *, times: int) -> dict[str, str]:
    (folder / "judge.py").write_text(JUDGE.format(fails=times))
    return {"use": f"{folder / 'judge.py'}:open_it"}


async def test_a_metric_that_failed_is_tried_again_and_the_others_keep_what_they_found(
    tmp_path: Path,
) -> None:
    judge = judge_that_fails(tmp_path, times=1)
    evaluate = {"metrics": ["faithfulness", "context_recall"], "retry_delays": ["10ms"]}
    carrier = await carrier_of(tmp_path, judge=judge, evaluate=evaluate)
    assert carrier.attributes[semconv.EVAL_STATUS] == "ok"
    assert carrier.attributes[f"{semconv.SCORE_PREFIX}faithfulness"] == 0.5
    assert carrier.attributes[f"{semconv.SCORE_PREFIX}context_recall"] == 0.5
    assert carrier.attributes[semconv.JUDGE_CALLS] == 4


async def test_what_is_found_is_shown_where_a_part_fails_for_good(tmp_path: Path) -> None:
    judge = judge_that_fails(tmp_path, times=99)
    metrics = ["faithfulness", "context_recall"]
    carrier = await carrier_of(tmp_path, judge=judge, evaluate={"metrics": metrics})
    assert carrier.name == "evaluation fail"
    assert carrier.attributes[semconv.EVAL_STATUS] == "partial"
    assert carrier.attributes[f"{semconv.SCORE_PREFIX}faithfulness"] == 0.5
    assert carrier.attributes[f"{semconv.LABEL_PREFIX}context_recall"] == "error"
    assert f"{semconv.SCORE_PREFIX}context_recall" not in carrier.attributes


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ("evaluate: {metrics: [question_similarity]}", "set `judge.embedder`"),
        ("evaluate: {metrics: [answer_relevancy, answer_relevance]}", "'answer_relevance' .* twice"),
        ("evaluate: {metrics: [{name: faithfulness, options: {strict: 1}}]}", "unexpected .*'strict'"),
        ("evaluate: {metrics: [{name: rag_score, options: {weights: {faithfulness: 2}}}]}", "add up to 1"),
        (AS_RAGAS % "a: 1", "faithfulness has no option 'a': choose from include_reason"),
        (AS_RAGAS % "strictness: a", "faithfulness: option 'strictness': write a whole number"),
        ("judge: {second: 'no_such:m'}", "there is no judge 'no_such'"),
    ],
)
def test_what_cannot_be_used_is_told_before_anything_starts(tmp_path: Path, sections: str, told: str) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(f"export: [{{endpoint: 'otlp-file:{tmp_path / 'out.jsonl'}'}}]\n{sections}\n")
    with pytest.raises(ConfigError, match=told):
        check_config(load_config(file, environ={}))
