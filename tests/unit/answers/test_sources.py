"""The same answer, opened from every kind of place."""

from __future__ import annotations

import json
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ragtrace.answer_sources import open_source
from ragtrace.answers.port import AnswerGone, AnswerSource, OpenedAnswer
from ragtrace.answers.summary import AnswerKey, key_of
from ragtrace.backends import open_carrier_sink
from ragtrace.backends.http_api import ConnectionSettings
from ragtrace.errors import ConfigError, ReadError
from ragtrace.model import JudgedAnswer, Sample, VerdictLabel, content_sha256
from ragtrace.reports import RunEnd, RunInfo, open_report
from ragtrace.traces.attach import AttachOptions, carrier
from ragtrace.traces.extract import extract_records
from ragtrace.traces.otlp import encode, encode_json
from ragtrace.traces.trace import Span, Trace
from tests.rag_spans import rag_trace
from tests.unit.backends.langfuse_server import langfuse_v3, langfuse_v4, observation_of
from tests.unit.backends.servers import HttpAnswer, http_server
from tests.unit.traces.builders import a_chunk_verdict, a_claim, a_failure, a_result, an_evaluation

SPANS = rag_trace(1)
TRACE_ID = SPANS[0].trace_id
(RECORD,) = extract_records(Trace.of(TRACE_ID, SPANS)).records
KEY = key_of(RECORD)
QUOTED = replace(
    a_claim(0, VerdictLabel.CONTRADICTED, text="Refunds take 14 days.", chunk_ids=("chunk-0",)),
    quote="take 14 days",
    confidence=0.75,
)
MADE = an_evaluation(
    a_result(QUOTED, a_claim(1, VerdictLabel.SUPPORTED), explanation="1 of 2 claims contradicted"),
    a_result(
        metric="chunk_precision",
        score=0.75,
        chunk_verdicts=(a_chunk_verdict(0, VerdictLabel.RELEVANT, reason="it has the days"),),
        explanation="1 of 1 chunks relevant",
    ),
    a_failure("answer_relevance"),
)
EVALUATION = replace(MADE, input_sha256=content_sha256(RECORD))
SAMPLE = Sample(rule="ratio", rate=0.5, probability=0.5)
CARRIER = carrier(
    EVALUATION, RECORD, sample=SAMPLE, options=AttachOptions(), now_ns=SPANS[0].end_ns + 10**9, cost_usd=0.01
)


async def opened(source: AnswerSource, key: AnswerKey = KEY) -> OpenedAnswer:
    async with aclosing(source):
        return await source.open(key)


def evidence(answer: OpenedAnswer) -> dict[str, Any]:
    """Return claims and evidence as a person sees them."""
    (version,) = answer.versions
    evaluation = version.judged.evaluation
    return {
        "question": answer.record.question,
        "answer": answer.record.answer,
        "chunks": [(chunk.id, chunk.text) for chunk in answer.record.chunks],
        "scores": {result.metric: (result.score, result.label) for result in evaluation.results},
        "failures": {failure.metric: failure.error_type for failure in evaluation.failures},
        "claims": {result.metric: result.verdicts for result in evaluation.results},
        "chunk verdicts": {result.metric: result.chunk_verdicts for result in evaluation.results},
        "explanations": [result.explanation for result in evaluation.results],
    }


EXPECTED = {
    "question": RECORD.question,
    "answer": RECORD.answer,
    "chunks": [(chunk.id, chunk.text) for chunk in RECORD.chunks],
    "scores": {result.metric: (result.score, result.label) for result in EVALUATION.results},
    "failures": {"answer_relevance": "judge_timeout"},
}


def otlp_file(folder: Path, *spans: Span) -> Path:
    path = folder / "traces.jsonl"
    path.write_text(encode_json((*SPANS, *spans)))
    return path


def report(folder: Path) -> Path:
    path = folder / "report.jsonl"
    about = RunInfo(source="a test", judge="openai:gpt", metrics=("faithfulness",), began_at_ns=0)
    writer = open_report(path, about)
    of = {"sample": SAMPLE, "carrier_span_id": CARRIER.span_id, "cost_usd": 0.01}
    writer.add(JudgedAnswer(record=RECORD, evaluation=EVALUATION, **of))  # type: ignore[arg-type]
    writer.close(RunEnd())
    return path


async def scores_sent(kind: str) -> list[dict[str, Any]]:
    """Return what our own sink writes for a carrier."""
    with http_server(lambda _: HttpAnswer(body=b"{}")) as server:
        access = ConnectionSettings(token="t") if kind == "phoenix" else ConnectionSettings(basic=("a", "b"))
        async with aclosing(open_carrier_sink(f"{kind}:{server.url}", access=access)) as sink:
            await sink.send(encode([CARRIER]))
    bodies = [json.loads(body) for _, _, body in server.requests if body]
    return [row for body in bodies for row in body.get("data", [body])]


async def test_file_with_carriers_and_report_show_the_same_claims_and_evidence(tmp_path: Path) -> None:
    whole = await opened(open_source(f"file:{otlp_file(tmp_path, CARRIER)}"))
    reported = await opened(open_source(f"file:{report(tmp_path)}"))
    assert evidence(whole) == evidence(reported)
    assert {key: evidence(whole)[key] for key in EXPECTED} == EXPECTED
    first = evidence(whole)["claims"]["faithfulness"][0]
    assert (first.quote, first.quote_verified) == ("take 14 days", True)
    assert whole.trace is not None
    assert (reported.trace, reported.notices) == (
        None,
        ("A report has no trace: there are no spans to show",),
    )
    assert whole.versions[0].notices == ()


@pytest.mark.parametrize("version", [langfuse_v3, langfuse_v4], ids=["v3", "v4"])
@pytest.mark.parametrize("has_carrier", [False, True], ids=["scores", "scores and carrier"])
async def test_scores_in_langfuse_are_opened_with_their_claims(version: Any, has_carrier: bool) -> None:
    scores = await scores_sent("langfuse")
    if version is langfuse_v4:
        scores = [
            {**score, "subject": {"kind": "observation", "id": score["observationId"]}} for score in scores
        ]
    observations = [observation_of(span) for span in (*SPANS, *((CARRIER,) if has_carrier else ()))]
    trace = {"id": TRACE_ID, "timestamp": observations[0]["startTime"]}
    with http_server(version(trace, observations, scores=scores)) as server:
        found = await opened(open_source(f"langfuse:{server.url}"))
    whole = evidence(found)
    assert {key: whole[key] for key in ("scores", "failures")} == {
        key: EXPECTED[key] for key in ("scores", "failures")
    }
    claims = whole["claims"]["faithfulness"]
    assert [(each.claim.text, each.claim.start, each.label, each.chunk_ids) for each in claims] == [
        ("Refunds take 14 days.", 0, VerdictLabel.CONTRADICTED, ("chunk-0",)),
        ("Claim 1.", 10, VerdictLabel.SUPPORTED, ()),
    ]
    (one,) = found.versions
    assert (one.judged.cost_usd == 0.01) == has_carrier


async def test_trace_that_is_gone_is_told_from_a_place_that_is_down(tmp_path: Path) -> None:
    path = otlp_file(tmp_path, CARRIER)
    with pytest.raises(AnswerGone) as raised:
        await opened(open_source(f"file:{path}"), AnswerKey("f" * 32, "f" * 16))
    assert str(raised.value) == f"otlp-file:{path} has no trace {'f' * 32} (any more)"
    with http_server(lambda _: HttpAnswer()) as server:
        url = server.url
    with pytest.raises(ReadError, match="cannot be reached") as down:
        await opened(open_source(f"jaeger:{url}"))
    assert not isinstance(down.value, AnswerGone)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("file:nothing.jsonl", "there is no such file"),
        ("file:-", "it would be read several times"),
        ("postgres://user:secret@host/db", "is not an address to read answers from"),
        ("jaeger:", "is not an address to read answers from"),
        ("jaeger:nonsense", "is not an address to read traces from"),
        ("nothing.jsonl", "is not an address to read answers from"),
    ],
)
def test_what_is_no_address_is_told_without_secrets(address: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        open_source(address)
    assert "secret" not in str(raised.value)
