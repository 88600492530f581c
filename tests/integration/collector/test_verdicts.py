"""The collector from OTLP in to carriers out: what is said of an answer, by which metrics and which judge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ragtrace import semconv
from ragtrace.errors import ConfigError
from ragtrace.metrics.judge_card import CardSet, IntervalEstimate, JudgeCard
from ragtrace.model import BlameClass
from ragtrace.traces.trace import Span
from ragtrace_collector.config import load_config
from ragtrace_collector.service.check import check_config
from tests.integration.collector.answer_pages import (
    ANSWER,
    CHUNKS,
    PATH,
    QUESTION,
    JudgedTrace,
    answer_client,
)
from tests.integration.collector.running import (
    carriers_in,
    config_of,
    post,
    request_of,
    running_collector,
    until,
)
from tests.integration.collector.test_ui_service import judged, page_of
from tests.rag_spans import rag_trace
from tests.unit.scoring.faulty_pipelines import Pipeline, pipeline

pytestmark = pytest.mark.slow

SCORE, LABEL = f"{semconv.SCORE_PREFIX}faithfulness", f"{semconv.LABEL_PREFIX}faithfulness"


def scripted(folder: Path, script: object) -> dict[str, str]:
    """Return the judge section for a scripted judge."""
    (folder / "script.json").write_text(json.dumps(script))
    return {"use": f"scripted:{folder / 'script.json'}"}


async def carrier_of(folder: Path, spans: Sequence[Span], **changes: Any) -> Span:
    """Send spans, and return the one carrier that comes of them."""
    async with running_collector(config_of(folder, **changes)) as collector:
        await post(collector, request_of(*spans))
        (carrier,) = await until(lambda: carriers_in(folder / "out.jsonl"))
    return carrier


# -- one answer -------------------------------------------------------------------------------------------
async def test_an_answer_gets_its_verdicts_on_its_own_trace(tmp_path: Path) -> None:
    invented = "Refunds take 30 days."
    spans = rag_trace(0, answer=f"Refunds take 14 days. {invented}")
    carrier = await carrier_of(tmp_path, spans)
    root = spans[0]
    assert (carrier.trace_id, carrier.parent_span_id) == (root.trace_id, root.span_id)
    assert [link.span_id for link in carrier.links] == [root.span_id]
    assert carrier.resource.attributes[semconv.SERVICE_NAME] == "shop"
    assert (carrier.name, carrier.attributes[SCORE]) == ("evaluation fail", 0.5)
    *claims, blame = carrier.events[1:]
    assert {event.attributes[semconv.CLAIM_ASSERTION]: event.name for event in claims} == {
        invented: "ragtrace.claim.contradicted",
        "Refunds take 14 days.": "ragtrace.claim.supported",
    }
    assert blame.name == semconv.BLAME_EVENT


async def test_a_judge_that_fails_gives_an_error_and_no_score(tmp_path: Path) -> None:
    config = config_of(tmp_path, judge=scripted(tmp_path, {"error": "judge_nonsense"}))
    async with running_collector(config) as collector:
        await post(collector, request_of(*rag_trace(0)))
        (carrier,) = await until(lambda: carriers_in(tmp_path / "out.jsonl"))
        assert (await collector.pipeline.store.ledger()).by_name()["failed:judge_nonsense"] == 1
    assert (carrier.name, carrier.attributes[LABEL]) == ("evaluation error", "error")
    assert carrier.events[0].attributes[semconv.ERROR_TYPE] == "judge_nonsense"
    assert not [key for key in carrier.attributes if key.startswith(semconv.SCORE_PREFIX)]


# -- several metrics --------------------------------------------------------------------------------------
ALL = [
    *("faithfulness", "hallucination", "answer_relevance"),
    *("context_precision", "context_recall", "rag_score"),
]
JUDGE = '''
from ragtrace.errors import JudgeNonsense, JudgeTimeout
from ragtrace.judge import ScriptedJudge


def open_it(settings):
    """Open a judge that fails on the reference {fails} times, and is not to be asked for the claims twice."""
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


def with_reference() -> tuple[Span, ...]:
    chunks = ("Refunds take 14 days.", "The shop is open on Sundays.")
    root, *others = rag_trace(0, chunks=chunks, answer="Refunds take 30 days. The shop is open on Sundays.")
    reference = {semconv.REFERENCE_ANSWER: "Refunds take 14 days. Cats purr."}
    return (replace(root, attributes={**root.attributes, **reference}), *others)


async def test_six_metrics_stand_on_one_carrier_with_all_their_verdicts(tmp_path: Path) -> None:
    carrier = await carrier_of(tmp_path, with_reference(), evaluate={"metrics": ALL})
    scores = {name: carrier.attributes[f"{semconv.SCORE_PREFIX}{name}"] for name in ALL}
    expected = {"faithfulness": 0.5, "hallucination": 0.5, "answer_relevance": 1.0, "context_recall": 0.5}
    assert scores.items() >= expected.items()
    assert carrier.attributes[semconv.EVAL_STATUS] == "ok"
    assert carrier.attributes[semconv.COMPOSITE] == scores["rag_score"]
    names = [event.name for event in carrier.events]
    assert names[:6] == [semconv.EVALUATION_RESULT] * 6
    assert names.count("ragtrace.claim.contradicted") == 1
    assert names.count("ragtrace.reference.unsupported") == 1
    assert sum(name.startswith("ragtrace.chunk.") for name in names) == 2


@pytest.mark.parametrize("fails", [1, 99], ids=["once", "for good"])
async def test_a_metric_that_fails_is_tried_again_and_the_others_keep_what_they_found(
    tmp_path: Path, fails: int
) -> None:
    (tmp_path / "judge.py").write_text(JUDGE.format(fails=fails))
    carrier = await carrier_of(
        tmp_path,
        with_reference(),
        judge={"use": f"{tmp_path / 'judge.py'}:open_it"},
        evaluate={"metrics": ["faithfulness", "context_recall"], "retry_delays": ["10ms"]},
    )
    told, recall = carrier.attributes, f"{semconv.SCORE_PREFIX}context_recall"
    assert told[SCORE] == 0.5
    assert (told[semconv.EVAL_STATUS], told.get(recall)) == (("ok", 0.5) if fails == 1 else ("partial", None))
    assert fails == 1 or told[f"{semconv.LABEL_PREFIX}context_recall"] == "error"


AS_RAGAS = "evaluate: {metrics: [{name: faithfulness, profile: ragas, peer_prompts: true, options: {%s}}]}"


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ("evaluate: {metrics: [question_similarity]}", "set `judge.embedder`"),
        ("evaluate: {metrics: [answer_relevancy, answer_relevance]}", "'answer_relevance' .* twice"),
        ("evaluate: {metrics: [{name: faithfulness, options: {strict: 1}}]}", "no option `strict`"),
        ("evaluate: {metrics: [{name: rag_score, options: {weights: {faithfulness: 2}}}]}", "add up to 1"),
        (AS_RAGAS % "a: 1", "faithfulness has no option 'a': choose from include_reason"),
        (AS_RAGAS % "strictness: a", "faithfulness: option 'strictness': write a whole number"),
        ("evaluate: {metrics: [{name: faithfulness, profile: deepval}]}", "deepval"),
        (
            "evaluate: {metrics: [{name: faithfulness, pass_when: mostly right}]}",
            "is not a condition such as",
        ),
        ("judge: {second: 'no_such:m'}", "there is no judge 'no_such'"),
    ],
)
def test_what_cannot_be_used_is_told_before_anything_starts(tmp_path: Path, sections: str, told: str) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(f"export: [{{endpoint: 'otlp-file:{tmp_path / 'out.jsonl'}'}}]\n{sections}\n")
    with pytest.raises(ConfigError, match=told):
        check_config(load_config(file, environ={}))


# -- the cause of a bad answer ----------------------------------------------------------------------------
def script_of(built: Pipeline) -> dict[str, object]:
    return {"chunks": {text: 2 if text in built.relevant else 0 for text in built.retrieved}}


@pytest.mark.parametrize("fault", [BlameClass.RERANK_DROP, BlameClass.TRUNCATED_CONTEXT])
async def test_people_find_an_answer_by_its_cause_and_see_the_evidence(
    tmp_path: Path, fault: BlameClass
) -> None:
    built = pipeline(fault, Random(11))
    config = config_of(
        tmp_path,
        judge=scripted(tmp_path, script_of(built)),
        evaluate={"metrics": ["faithfulness", "chunk_precision"]},
        ui={"listen": "127.0.0.1:0"},
    )
    async with running_collector(config) as collector, page_of(collector) as client:
        await post(collector, request_of(*built.trace(0).spans))
        (path,) = await judged(client)
        page = (await client.get(path)).text
        listed = await client.get(f"/answers.jsonl?blame={fault.value}")
        others = await client.get("/answers.jsonl?blame=fabricated")
        (carrier,) = await until(lambda: carriers_in(tmp_path / "out.jsonl"))
    assert carrier.attributes[semconv.BLAME_CLASS] == fault.value
    (event,) = [event.attributes for event in carrier.events if event.name == semconv.BLAME_EVENT]
    assert event[semconv.BLAME_CHUNK_IDS]
    assert f"<b>{fault.value.replace('_', ' ')}</b>" in page
    assert (len(listed.text.splitlines()), others.text) == (1, "")


async def test_the_carrier_has_no_quote_without_content(tmp_path: Path) -> None:
    built = pipeline(BlameClass.CONTRADICTED_CONTEXT, Random(13))
    judge, attach = scripted(tmp_path, script_of(built)), {"content": False}
    carrier = await carrier_of(tmp_path, built.trace(0).spans, judge=judge, attach=attach)
    assert carrier.attributes[semconv.BLAME_CLASS] == "contradicted_context"
    assert "pump needs" not in repr(carrier)


# -- what was measured of the judge -----------------------------------------------------------------------
def a_card(
    path: Path, *, auc: float = 0.8, contradicted: float = 0.9, judge: str = "scripted:scripted"
) -> str:
    measured = CardSet(
        name="mine.jsonl",
        digest="ab" * 8,
        auc=IntervalEstimate(value=auc),
        floor_auc=IntervalEstimate(value=0.7),
        contradicted_precision=IntervalEstimate(value=contradicted),
    )
    provider, model = judge.split(":")
    JudgeCard(provider=provider, model=model, date="2026-11-25", sets=[measured]).write(path)
    return str(path)


async def judged_with(folder: Path, **judge: Any) -> Span:
    verdict = {"label": "contradicted", "chunks": [1], "quote": CHUNKS[0], "reason": "14, not 30"}
    judge = {**scripted(folder, {"claims": {"Refunds take 30 days.": verdict}}), **judge}
    spans = rag_trace(0, question=QUESTION, chunks=CHUNKS, answer=ANSWER)
    return await carrier_of(folder, spans, judge=judge)


@pytest.mark.parametrize(
    ("auc", "state", "said"),
    [(None, "none", "no card: nobody"), (0.6, "below_floor", "no better than shared words")],
)
async def test_the_carrier_and_the_page_say_whether_the_judge_was_measured(
    tmp_path: Path, auc: float | None, state: str, said: str
) -> None:
    cards = {} if auc is None else {"card": a_card(tmp_path / "card.json", auc=auc)}
    carrier = await judged_with(tmp_path, **cards)
    assert carrier.attributes[semconv.JUDGE_CARD] == state
    opened = JudgedTrace(carriers=(carrier,)).opened()
    assert said in answer_client(opened).get(PATH).text
